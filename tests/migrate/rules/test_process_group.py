"""AM701: joining and parting the processes."""

from __future__ import annotations

from tests.migrate.rules.handwritten import script
from tests.migrate.rules.verbs import ACCELERATE, migrated, noted, unchanged


def test_the_accelerator_is_made_where_processes_were_joined():
    text = migrated(script())
    assert "def main():\n    accelerator = Accelerator()\n" in text
    assert "init_process_group" not in text


def test_the_question_for_a_devices_backend_goes_with_the_group():
    asked = 'dist.init_process_group(dist.get_default_backend_for_device("cuda"))'
    assert "backend" not in migrated(script().replace('dist.init_process_group("nccl")', asked))


def test_set_device_goes_and_the_rest_of_its_guard_stays():
    text = migrated(
        script(start="if torch.cuda.is_available():\n            torch.cuda.set_device(0)\n            tune()")
    )
    assert "    if torch.cuda.is_available():\n        tune()\n" in text


def test_parting_becomes_end_training():
    assert "accelerator.end_training()" in migrated(script(body="dist.destroy_process_group()"))


def test_where_processes_meet_is_the_launchers_business():
    text = migrated(script(start='os.environ["MASTER_PORT"] = "1234"\n        os.environ["OMP_NUM_THREADS"] = "1"'))
    assert "MASTER_PORT" not in text
    assert 'os.environ["OMP_NUM_THREADS"] = "1"' in text


def test_a_call_that_asks_first_stays():
    text = migrated(script(body="if dist.is_initialized(): dist.broadcast(loss, 0)"))
    assert "if dist.is_initialized(): dist.broadcast(loss, 0)" in text


def test_the_timeout_is_handed_on():
    source = script().replace('init_process_group("nccl")', 'init_process_group("nccl", timeout=timedelta(hours=2))')
    text = migrated(source.replace("    import torch\n", "    from datetime import timedelta\n\n    import torch\n", 1))
    assert "kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(hours=2))]" in text
    assert "from datetime import timedelta\n" in text
    assert "from accel_runtime import Accelerator, InitProcessGroupKwargs\n" in text


def test_a_helper_that_asks_first_stays():
    helper = "    def is_main():\n        return not dist.is_initialized() or dist.get_rank() == 0\n\n\n    def main():"
    text = migrated(script(body="if is_main(): tell()").replace("    def main():", helper))
    assert "def is_main():\n    return not dist.is_initialized() or dist.get_rank() == 0\n" in text


def test_a_rank_that_the_script_works_out_leaves_the_loop():
    source = script().replace('init_process_group("nccl")', 'init_process_group("nccl", rank=node * 8 + card)')
    assert "rank=node * 8 + card" in unchanged(source)


def test_groups_of_processes_leave_the_loop():
    assert "groups" in unchanged(script(start="half = dist.new_group([0, 1])"))


def test_the_variables_of_another_launcher_leave_the_loop():
    assert "SLURM_PROCID" in unchanged(script(start='rank = int(os.environ["SLURM_PROCID"])'))
    assert "Accelerator()" in migrated(script(start='print(os.environ["SLURM_JOB_ID"])'))
    machines = 'machines = int(os.environ.get("SLURM_NNODES", "1"))'
    assert "Accelerator()" in migrated(script(start=f"{machines}; print(machines)"))
    assert "the number of processes is made of SLURM_NNODES" in unchanged(script(start=f"{machines}; n = machines * 4"))
    assert "made of SLURM_GPUS_ON_NODE" in unchanged(script(start='n = 2 * int(os.environ["SLURM_GPUS_ON_NODE"])'))


BY_ANOTHER = """if "RANK" in os.environ:
            rank = int(os.environ["RANK"])
        elif "SLURM_PROCID" in os.environ:
            rank = int(os.environ["SLURM_PROCID"])
        else:
            rank = 0
        show(rank)"""


def test_another_launcher_beside_torchrun_is_known_to_the_runtime():
    text = migrated(script(start=BY_ANOTHER))
    assert text.count("rank = accelerator.process_index\n") == 2
    asked = 'rank = int(os.environ["OMPI_COMM_WORLD_RANK"] if by_mpi else os.environ["RANK"])'
    assert "OMPI_COMM_WORLD_RANK" in unchanged(script(start=asked))


def test_accelerate_does_not_know_of_slurm():
    assert "SLURM_PROCID" in unchanged(script(start=BY_ANOTHER), ACCELERATE)


def test_a_collective_without_counterpart_leaves_the_loop():
    assert "all_gather" in unchanged(script(body="dist.all_gather(parts, loss)"))


def test_the_note_points_at_the_place():
    assert "all_gather" in noted(script(body="dist.all_gather(parts, loss)"), "AM901")


COACHED = """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader

    class Coach:
        def __init__(self, model, rows, optimizer):
            self.model, self.rows, self.optimizer = DistributedDataParallel(model.cuda()), rows, optimizer

        def train(self):
            for x in self.rows:
                self.optimizer.zero_grad()
                loss = self.model(x.cuda()).mean()
                loss.backward()
                self.optimizer.step()

    def main():
        dist.init_process_group("nccl")
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rows = DataLoader(data(), batch_size=8, shuffle=True)
        {trained}
        dist.destroy_process_group()

    main()
    """


def test_a_trainer_without_a_name_is_what_keeps_the_accelerator_from_its_caller():
    reason = unchanged(COACHED.format(trained="Coach(model, rows, optimizer).train()"))
    assert "the Coach has no name to ask it by; give it one, as in `trainer = Coach(...)`" in reason
    named = COACHED.format(trained="coach = Coach(model, rows, optimizer)\n        coach.train()")
    assert "coach.accelerator.end_training()" in migrated(named)

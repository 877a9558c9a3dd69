"""A machine with GPUs that has none: on it a model and its data that part ways fail, as they would on a real one.

    python -m tests.gpu_stand_in [--gpus N] [--steps N] SCRIPT ARGUMENTS...

Every tensor is a plain tensor of the CPU, whose memory carries a mark: the GPU on which it stands (`marks`). `.to("cuda:1")`,
`.cuda()` and `device=` set the mark, `x.device` reads it (`tensors`), what is computed inherits it, and an operation over
tensors of two devices raises torch's own error (`modes`). So do `.numpy()` of a tensor on a GPU, lengths that
`pack_padded_sequence` finds there, and a generator of the CPU that meets a tensor there. Tensors of one number and indices on the
CPU meet tensors of a GPU, as in torch. Since tensors have values, losses can be read and compared. A GPU draws from its own
generator, so weights that were drawn after a move differ from those that were drawn before it, as on a real machine.

`torch.cuda` and `torch.accelerator` answer as if there were GPUs (`machine`); DataParallel moves its input, runs on its first GPU
and checks that the weights are there; NCCL is gloo, and what DistributedDataParallel would refuse of a GPU is not checked.

What it does not show: numerical differences between devices, streams, memory, and operations that a GPU lacks.
"""

from tests.gpu_stand_in.machine import gpus

__all__ = ["gpus"]

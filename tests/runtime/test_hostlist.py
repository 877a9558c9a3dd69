"""SLURM's short forms of hosts and tasks."""

from __future__ import annotations

import pytest
from accel_runtime.errors import WorldError
from accel_runtime.hostlist import first_host, hosts_of, tasks_on


@pytest.mark.parametrize(
    ("nodes", "hosts"),
    [
        ("login", ["login"]),
        ("a,b.example.org", ["a", "b.example.org"]),
        ("gpu[1-3]", ["gpu1", "gpu2", "gpu3"]),
        ("gpu[009-010,12],login", ["gpu009", "gpu010", "gpu12", "login"]),
        ("rack[1-2]-node[0-1]", ["rack1-node0", "rack1-node1", "rack2-node0", "rack2-node1"]),
        ("n[3]-ib", ["n3-ib"]),
    ],
)
def test_node_lists_are_written_out_in_order(nodes: str, hosts: list[str]) -> None:
    assert hosts_of(nodes) == hosts
    assert first_host(nodes) == hosts[0]


@pytest.mark.parametrize("nodes", ["gpu[1-3", "gpu[a-b]"])
def test_a_broken_node_list_is_named(nodes: str) -> None:
    with pytest.raises(WorldError, match="node list"):
        hosts_of(nodes)


def test_tasks_per_node() -> None:
    assert [tasks_on(node, "2(x2),1") for node in range(3)] == [2, 2, 1]
    assert [tasks_on(node, "4") for node in range(3)] == [4, 4, 4]
    with pytest.raises(WorldError, match="tasks per machine"):
        tasks_on(0, "many")

"""The two processes of `test_classes_under_ddp`: python tests/ddp_rank.py PORT CASE.pt; prints a line for each."""

import json
import os
import sys

import torch
import torch.distributed as dist

from hierbench import Hierarchy
from hierbench.metrics.classes import HierarchicalMetrics
from hierbench.metrics.field_classes import HOPS, HierarchicalAURC, HierarchicalScore

if __name__ == "__main__":
    child = os.fork()  # nothing is computed yet, so that no thread is lost
    rank, port, case = int(child == 0), sys.argv[1], torch.load(sys.argv[2], weights_only=True)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    tree = Hierarchy.from_paths({path[-1]: tuple(path) for path in case["paths"]})
    metric = HierarchicalMetrics(tree)
    others = {
        "hops": HOPS(tree),
        "hf_macro": HierarchicalScore(tree, "hf_macro"),
        "haurc_climbing": HierarchicalAURC(tree),
    }
    share = [slice(0, 5), slice(5, None)][rank]  # unequal shares
    for each in (metric, *others.values()):
        each.update(case["scores"][share], case["targets"][share])
    found = metric.compute() | {name: other.compute().item() for name, other in others.items()}
    os.write(1, f"{json.dumps(found)}\n".encode())  # at once, as the other one writes there too
    dist.destroy_process_group()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0)  # without the seconds in which Python takes its modules apart

"""The two processes of `test_the_class_under_ddp`: python tests/support/ddp_rank.py PORT CASE.pt; a line for each."""

import json
import os
import sys

import torch
import torch.distributed as dist

from hierbench import Hierarchy
from hierbench.metrics.classes import HierarchicalMetric
from hierbench.metrics.metric_table import PAPER_NAMES

if __name__ == "__main__":
    child = os.fork()  # nothing is computed yet, so that no thread is lost
    rank, port, case = int(child == 0), sys.argv[1], torch.load(sys.argv[2], weights_only=True)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    tree = Hierarchy.from_paths({path[-1]: tuple(path) for path in case["paths"]})
    names = [*PAPER_NAMES[:4], "hops", "hf_macro", "haurc_climbing"]
    metrics = {name: HierarchicalMetric(tree, name) for name in names}
    share = [slice(0, 5), slice(5, None)][rank]  # unequal shares
    for metric in metrics.values():
        metric.update(case["scores"][share], case["targets"][share])
    values = {name: metric.compute().item() for name, metric in metrics.items()}
    os.write(1, f"{json.dumps(values)}\n".encode())  # at once, as the other one writes there too
    dist.destroy_process_group()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0)  # without the seconds in which Python takes its modules apart

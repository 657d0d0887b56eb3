"""One of the two processes of `test_classes_under_ddp`: python tests/ddp_rank.py RANK PORT CASE.pt."""

import json
import sys

import torch
import torch.distributed as dist

from hierbench import Hierarchy
from hierbench.metrics.classes import HierarchicalMetrics

if __name__ == "__main__":
    rank, port, case = int(sys.argv[1]), sys.argv[2], torch.load(sys.argv[3], weights_only=True)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    metric = HierarchicalMetrics(Hierarchy.from_paths({path[-1]: tuple(path) for path in case["paths"]}))
    share = [slice(0, 5), slice(5, None)][rank]  # unequal shares
    metric.update(case["scores"][share], case["targets"][share])
    print(json.dumps(metric.compute()))
    dist.destroy_process_group()

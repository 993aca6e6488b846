"""Answers the same questions as collective_bench.cc with PyTorch's gloo. Usage: torch_collective.py FOLDER RANK.

The processes run where the kernel puts them, because gloo is slower on one core: gloo hands every operation from thread
to thread.
"""

import sys
import time

import torch
import torch.distributed as dist


def operation(name, size):
    """Returns one operation on a tensor of `size` bytes as a whole."""
    whole = torch.ones(max(1, size // 4), dtype=torch.float32)
    if name == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if name == "all_gather":
        part = torch.ones(size // 8, dtype=torch.float32)
        return lambda: dist.all_gather_into_tensor(whole, part)
    if name == "move":
        return lambda: dist.send(whole, 1) if dist.get_rank() == 0 else dist.recv(whole, 0)
    raise SystemExit(f"torch_collective.py: no such command: {name}")


def seconds(run, count):
    for _ in range(3):
        run()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(count):
        run()
    return time.perf_counter() - begin


def main():
    folder, rank = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    with open(f"{folder}/commands.{rank}", encoding="ascii") as commands:
        answers = open(f"{folder}/answers", "w", encoding="ascii") if rank == 0 else None
        for line in commands:
            if line == "end\n":
                break
            name, size, count = line.split()
            took = seconds(operation(name, int(size)), int(count))
            if answers:
                print(took, file=answers, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

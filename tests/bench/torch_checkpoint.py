"""Saves and loads tensors with torch.distributed.checkpoint, in one of two processes.

Usage: torch_checkpoint.py FOLDER RANK COUNT. FOLDER/tensors.RANK is a list of [name, shape] in JSON: the f32 tensors
that this rank owns. Every rank saves its own tensors under names of its own, so nothing is exchanged and nothing is
written twice. Rank 0 prints {"version", "bytes", "stall", "async", "save", "load"}, with the bytes of a checkpoint and
lists of seconds, or {"lacks"}.
"""

import json
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed as dist

try:
    import torch.distributed.checkpoint as checkpoints
except ImportError:
    checkpoints = None


def main():
    folder, rank, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    if not hasattr(checkpoints, "async_save"):
        if rank == 0:
            print(json.dumps({"lacks": f"PyTorch {torch.__version__} has no torch.distributed.checkpoint.async_save"}))
        return
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    tensors = {f"{rank}.{name}": torch.ones(shape, dtype=torch.float32)
               for name, shape in json.loads((folder / f"tensors.{rank}").read_text(encoding="utf-8"))}
    size = 0
    times = {"stall": [], "async": [], "save": [], "load": []}

    def take(name, act):
        dist.barrier()
        begin = time.perf_counter()
        result = act()
        dist.barrier()
        times[name].append(time.perf_counter() - begin)
        return result

    for i in range(count):
        path = folder / f"torch-{i}"
        dist.barrier()
        begin = time.perf_counter()
        writing = checkpoints.async_save(tensors, checkpoint_id=str(path / "async"))
        times["stall"].append(time.perf_counter() - begin)
        writing.result()
        dist.barrier()
        times["async"].append(time.perf_counter() - begin)
        take("save", lambda path=path: checkpoints.save(tensors, checkpoint_id=str(path / "save")))
        take("load", lambda path=path: checkpoints.load(tensors, checkpoint_id=str(path / "save")))
        dist.barrier()
        if rank == 0:
            size = sum(file.stat().st_size for file in (path / "save").rglob("*") if file.is_file())
            shutil.rmtree(path)
    if rank == 0:
        print(json.dumps({"version": torch.__version__, "bytes": size, **times}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

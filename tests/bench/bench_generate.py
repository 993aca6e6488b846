"""The section `generate` of tools/bench: tokens per second with a cache of keys and values, beside those of the same
program without the cache, and beside a loop in PyTorch with a cache.
"""

import json
import pathlib
import re
import tempfile

from tests.bench import bench_programs, bench_report

NET = {"layers": 8, "hidden": 256, "heads": 4, "vocab": 256, "sequence": 256}
SMOKE_NET = {"layers": 2, "hidden": 16, "heads": 2, "vocab": 256, "sequence": 16}
BATCHES = (1, 8)


def weir_speed(bench, job, weights, prompts, tokens, flags):
    """Returns tokens per second after the first token of each prompt."""
    command = [bench.weir, "generate", job, "--init", weights, "--temperature", 0, "--max-tokens", tokens,
               "--threads", 1, "--json", "--stats", *flags]
    for prompt in prompts:
        command += ["--prompt", prompt]
    with bench.start(command) as program:
        errors = program.finish(bench.limit_s)[1]
    return float(re.search(r"then ([\d.]+) tokens/s", errors).group(1))


def generate_rows(bench):
    net = bench.sized(NET, NET, SMOKE_NET)
    prompt, tokens = bench.sized((16, 128), (16, 64), (4, 4))
    rounds = bench.sized(5, 3, 1)
    flags = [part for name, value in net.items() for part in ("--" + name, value)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        job, weights = pathlib.Path(folder) / "job.textproto", pathlib.Path(folder) / "weights.safetensors"
        job.write_text(bench.run([bench.weir, "zoo", "gpt", *flags, "--batch", 2]), encoding="utf-8")
        bench.run([bench.weir, "train", job, "--steps", 1, "--save", weights])
        for batch in BATCHES:
            peer = bench_programs.Peer("PyTorch")
            ours, by_windows, theirs, version = [], [], [], ""
            prompts = ["a" * prompt] * batch
            torch_command = [bench.torch, bench.root / "tests/bench/torch_generate.py", *flags, "--batch", batch,
                             "--prompt", prompt, "--tokens", tokens]
            for _ in range(rounds):
                ours.append(weir_speed(bench, job, weights, prompts, tokens, []))
                by_windows.append(weir_speed(bench, job, weights, prompts, tokens, ["--no-cache"]))
                if not bench.torch:
                    continue
                said = peer.sample(lambda: json.loads(bench.run(torch_command, 1, bench.peer_limit_s)))
                if said:
                    theirs.append(batch * (tokens - 1) / said["seconds"])
                    version = said["version"]
            what = f"{batch} prompt{'s' if batch > 1 else ''}, {tokens} tokens each, 1 thread"
            rows.append(bench_report.row(what, "tokens/s", ours, "without the cache", by_windows, "higher", None,
                                         "wall time, after the first token of each prompt"))
            if bench.torch:
                rows.append(peer.checked(bench_report.row(what, "tokens/s", ours, f"PyTorch {version} with a cache",
                                                          theirs, "higher", None, "")))
    return rows

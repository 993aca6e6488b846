"""Reads weights under the names of public files into the jobs of the fixtures, and writes them back.

No PyTorch is needed. The files are made of the weights of the fixtures, with the names and the shapes that
`save_pretrained` gives them.
"""

import array
import json
import math
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from weir import safetensors_file

PROGRAM = pathlib.Path("tools/weir").resolve()
MODELS = pathlib.Path("tests/models")
STEPS = 2


def read(path):
    """Returns {name: (shape, bytes)} of a file of f32."""
    return {name: (shape, bytes(data)) for name, (_, shape, data) in safetensors_file.read(path).items()}


def write(path, tensors):
    safetensors_file.write(path, {name: ("F32", shape, lambda data=data: data)
                                  for name, (shape, data) in tensors.items()})


def side_by_side(parts):
    """Joins matrices, or vectors, along their last axis."""
    rows = 1 if len(parts[0][0]) == 1 else parts[0][0][0]
    data = b"".join(part[1][row * len(part[1]) // rows:(row + 1) * len(part[1]) // rows]
                    for row in range(rows) for part in parts)
    return parts[0][0][:-1] + (sum(part[0][-1] for part in parts),), data


def transposed(tensor):
    (rows, columns), data = tensor
    values = array.array("f", data)
    return (columns, rows), array.array("f", (values[r * columns + c] for c in range(columns)
                                              for r in range(rows))).tobytes()


def renamed(tensors, *patterns):
    """Returns the tensors with the first pattern applied to each name that fits."""
    result = {}
    for name, tensor in tensors.items():
        for pattern, replacement in patterns:
            if re.search(pattern, name):
                name = re.sub(pattern, replacement, name)
                break
        result[name] = tensor
    return result


def gpt2(tensors):
    """q, k and v side by side."""
    result = {name: tensor for name, tensor in tensors.items() if ".c_attn." not in name}
    for name in [name for name in tensors if re.search(r"c_attn\.\w+\.0$", name)]:
        stem = name[:-2]
        result[stem] = side_by_side([tensors[f"{stem}.{k}"] for k in range(3)])
    return result


def gpt2_of_the_hub(tensors):
    """Without the prefix, with the masks of attention, and with the tied table under both names."""
    result = renamed(gpt2(tensors), (r"^transformer\.", ""))
    result["h.0.attn.bias"] = ((1, 1, 2, 2), bytes(16))
    result["lm_head.weight"] = tensors["transformer.wte.weight"]
    return result


def old_bert(tensors):
    result = renamed(tensors, (r"LayerNorm\.weight$", "LayerNorm.gamma"), (r"LayerNorm\.bias$", "LayerNorm.beta"))
    result["cls.seq_relationship.bias"] = ((2,), bytes(8))
    result["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    return result


def vit(tensors):
    result = renamed(tensors, (r"layers\.(\d+)\.attention\.q_proj", r"encoder.layer.\1.attention.attention.query"),
                     (r"layers\.(\d+)\.attention\.k_proj", r"encoder.layer.\1.attention.attention.key"),
                     (r"layers\.(\d+)\.attention\.v_proj", r"encoder.layer.\1.attention.attention.value"),
                     (r"layers\.(\d+)\.attention\.o_proj", r"encoder.layer.\1.attention.output.dense"),
                     (r"layers\.(\d+)\.mlp\.fc1", r"encoder.layer.\1.intermediate.dense"),
                     (r"layers\.(\d+)\.mlp\.fc2", r"encoder.layer.\1.output.dense"),
                     (r"layers\.(\d+)\.", r"encoder.layer.\1."))
    patches = "vit.embeddings.patch_embeddings.projection.weight"
    result[patches] = ((24, 3, 4, 4), result[patches][1])
    return result


def t5(tensors):
    result = {name: tensor for name, tensor in tensors.items() if not name.startswith("constants.")}
    result["encoder.embed_tokens.weight"] = result["shared.weight"]
    return result


def with_buffers(tensors):
    return {**tensors, "model.rotary_emb.inv_freq": ((4,), bytes(16))}


# {what the file is: (fixture, function that makes its tensors, the map that fits, tensors that no weight needs)}
FILES = {
    "GPT-2": ("gpt2", gpt2, "gpt2", []),
    "GPT-2 of the hub": ("gpt2", gpt2_of_the_hub, "gpt2", ["h.0.attn.bias", "lm_head.weight"]),
    "Llama": ("llama", with_buffers, "llama", ["model.rotary_emb.inv_freq"]),
    "Mistral": ("mistral", with_buffers, "llama", ["model.rotary_emb.inv_freq"]),
    "Qwen2": ("qwen2", with_buffers, "llama", ["model.rotary_emb.inv_freq"]),
    "BERT, old names": ("bert", old_bert, "bert", ["cls.seq_relationship.bias", "cls.predictions.decoder.weight"]),
    "ViT": ("vit", vit, "vit", []),
    "T5": ("t5", t5, "t5", ["encoder.embed_tokens.weight"]),
}


class PublicWeightsTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.scratch = pathlib.Path(folder.name)

    def weir(self, *words, code=0):
        done = subprocess.run([str(word) for word in (PROGRAM, *words)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + " ".join(done.stderr.split())  # without the line breaks of errors

    def fixture(self, name):
        """Returns a copy of a fixture. A constants file lies beside its job."""
        folder = self.scratch / name
        if not folder.exists():
            folder.mkdir()
            for file in ("job.textproto", "weights.safetensors"):
                shutil.copy(MODELS / name / file, folder)
        return folder

    def losses(self, job, weights, *options):
        metrics = self.scratch / "metrics.jsonl"
        metrics.unlink(missing_ok=True)
        self.weir("train", job, "--init", weights, "--steps", STEPS, "--metrics", metrics, *options)
        return [json.loads(line)["loss"] for line in metrics.read_text(encoding="utf-8").splitlines()]

    def test_a_public_file_trains_as_the_weights_of_the_job(self):
        for what, (fixture, make, known, _) in FILES.items():
            with self.subTest(file=what):
                folder = self.fixture(fixture)
                job, public = folder / "job.textproto", self.scratch / "model.safetensors"
                write(public, make(read(folder / "weights.safetensors")))
                self.assertIn(f"by the map {known}\n", self.weir("weights", "check", job, public))
                for options in ((), ("--mesh", "tp=2")):
                    self.assertEqual(self.losses(job, public, *options),
                                     self.losses(job, folder / "weights.safetensors", *options))

    def test_there_and_back_gives_equal_bytes(self):
        for what, (fixture, make, _, not_needed) in FILES.items():
            with self.subTest(file=what):
                folder = self.fixture(fixture)
                job, public = folder / "job.textproto", self.scratch / "model.safetensors"
                own, back, again = (self.scratch / f"{name}.safetensors" for name in ("own", "back", "again"))
                tensors = make(read(folder / "weights.safetensors"))
                write(public, tensors)
                self.weir("weights", "convert", job, public, "-o", own)
                self.assertEqual(read(own), read(folder / "weights.safetensors"))
                self.weir("export", job, "--weights", own, "--safetensors", back, "--like", public)
                self.assertEqual(read(back), {name: tensor for name, tensor in tensors.items()
                                              if name not in not_needed})
                self.weir("weights", "convert", job, back, "-o", again)
                self.assertEqual(again.read_bytes(), own.read_bytes())

    def test_two_processes_read_their_parts_of_a_folder(self):
        folder = self.fixture("gpt2")
        public = self.scratch / "public"
        public.mkdir()
        write(public / "model.safetensors", gpt2(read(folder / "weights.safetensors")))
        job = folder / "job.textproto"
        options = ("--mesh", "tp=2", "--processes", "2")
        self.assertEqual(self.losses(job, public, *options),
                         self.losses(job, folder / "weights.safetensors", *options))

    def test_two_processes_follow_the_map_beside_the_job(self):
        folder = self.fixture("t5")
        tensors = renamed(t5(read(folder / "weights.safetensors")), (r"^", "mine."))
        tensors["mine.shared.weight"] = transposed(tensors["mine.shared.weight"])
        del tensors["mine.encoder.embed_tokens.weight"]
        public = self.scratch / "public.safetensors"
        write(public, tensors)
        job = folder / "job.textproto"
        self.assertIn("W0071", self.weir("check", job, "--init", public, code=65))
        (folder / "job.weights.textproto").write_text(
            'rule { weight: "shared.weight" from { tensor: "mine.shared.weight" transpose: [1, 0] } }\n'
            'rule { weight: "encoder.{*}" from { tensor: "mine.encoder.{*}" } }\n'
            'rule { weight: "decoder.{*}" from { tensor: "mine.decoder.{*}" } }\n'
            'constant: "constants.{i}"\nconstants_file: "weights.safetensors"\n', encoding="utf-8")
        self.weir("check", job, "--init", public)
        for options in ((), ("--mesh", "tp=2", "--processes", "2")):
            self.assertEqual(self.losses(job, public, *options),
                             self.losses(job, folder / "weights.safetensors", *options))

    def test_the_models_of_the_zoo_read_public_files(self):
        for zoo, extra, tied in (("gpt", [], "transformer.wte.weight"), ("llama", ["--kv-heads", "2"], None)):
            with self.subTest(model=zoo):
                job, own, public = (self.scratch / f"{zoo}.{end}" for end in ("textproto", "own", "public"))
                text = self.weir("zoo", zoo, "--layers", 2, "--hidden", 16, "--heads", 4, "--vocab", 32, "--sequence",
                                 8, "--batch", 4, *extra, *(["--tied"] if tied else []))
                job.write_text(text, encoding="utf-8")
                self.weir("train", job, "--steps", 1, "--save", own)
                self.weir("export", job, "--weights", own, "--safetensors", public)
                tensors = read(public)
                if tied:
                    self.assertEqual(tensors["transformer.h.1.attn.c_attn.weight"],
                                     side_by_side([read(own)[f"layers.1.w{part}"] for part in "qkv"]))
                    self.assertNotIn("lm_head.weight", tensors)
                else:
                    self.assertEqual(tensors["model.layers.1.self_attn.k_proj.weight"],
                                     transposed(read(own)["layers.1.wk"]))
                self.assertEqual(self.losses(job, public), self.losses(job, own))

    def test_what_does_not_fit_is_named_on_both_sides(self):
        folder = self.fixture("gpt2")
        tensors = gpt2(read(folder / "weights.safetensors"))
        tensors["transformer.h.1.ln_3.weight"] = tensors.pop("transformer.h.1.ln_2.weight")
        public = self.scratch / "model.safetensors"
        write(public, tensors)
        for words in (("train", "--init"), ("check", "--init"), ("weights", "check")):
            verb, option = (words, ()) if words[0] == "weights" else (words[:1], words[1:])
            text = self.weir(*verb, folder / "job.textproto", *option, public, code=65)
            self.assertIn("W0071", text)
            self.assertIn("no tensor transformer.h.1.ln_2.weight for weight transformer.h.1.ln_2.weight", text)
            self.assertIn("no weight that uses tensor transformer.h.1.ln_3.weight", text)

    def test_a_pickle_is_refused_with_the_line_that_makes_safetensors(self):
        text = self.weir("train", self.fixture("gpt2") / "job.textproto", "--init", "model.pt", code=65)
        self.assertIn("W0049 at model.pt", text)
        self.assertIn("torch.load('model.pt', weights_only=True)", text)


if __name__ == "__main__":
    unittest.main()

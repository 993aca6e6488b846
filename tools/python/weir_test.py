"""Tests the parts of the package that need no PyTorch: the text of jobs, weights, dimensions, functions and runs."""

import gc
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import weir
from weir import (arrays, data_sources, dims, functions, inputs, program, remedies, rewrite, safetensors_file,
                  textproto, token_files, weight_map)
from weir.dims import Dim
from weir.graph import Cut, Graph, Parameter, Value, make_node
from weir.textproto import Enum, Message
from weir.torch_version import check_version

PROGRAM = str(pathlib.Path("tools/weir").resolve())


def no_constant(values, shape):
    raise AssertionError("no constant is expected")


def chain(graph, op, inputs, module="", **attrs):
    """Adds a node to a graph and returns its result."""
    node = make_node(op, inputs, attrs, module)
    graph.nodes.append(node)
    return node.output


def parameter(name, *shape):
    return Parameter(tuple(Dim(size) for size in shape), "f32", name, cut=Cut(name, shape))


class TextTest(unittest.TestCase):

    def test_fields_keep_their_order_and_kinds(self):
        message = Message([("name", 'a "b"\n'), ("size", 3), ("rate", 0.5), ("on", True), ("kind", Enum("COSINE")),
                           ("empty", Message()), ("values", [1, 2])])
        self.assertEqual(textproto.to_text(message), 'name: "a \\"b\\"\\n"\nsize: 3\nrate: 0.5\non: true\n'
                                                     "kind: COSINE\nempty {}\nvalues: [1, 2]\n")

    def test_a_long_message_takes_several_lines(self):
        message = Message([("node", Message([("name", "n" * 60), ("op", "o" * 60)]))])
        self.assertEqual(textproto.to_text(message), f'node {{\n  name: "{"n" * 60}"\n  op: "{"o" * 60}"\n}}\n')

    def test_a_field_is_found_beside_texts_comments_and_inner_fields(self):
        text = '# graph { no }\nname: "graph { no }"\njob { graph { no } }\ngraph {\n  a: "}"  # }\n  b { c: 1 }\n}\n'
        self.assertEqual(textproto.field_text(text, "graph").strip(), 'a: "}"  # }\n  b { c: 1 }')
        with self.assertRaisesRegex(weir.Error, "expected a field \"mesh\""):
            textproto.field_text(text, "mesh")


class DimsTest(unittest.TestCase):

    def test_names_pass_through_reshapes_as_far_as_elements_do(self):
        b, s, h = Dim(8, "batch"), Dim(6, "sequence"), Dim(12)
        self.assertEqual([d.name for d in dims.reshaped((b, s, h), (8, 6, 3, 4))], ["batch", "sequence", "", ""])
        merged = dims.reshaped((b, s, h), (48, 12))
        self.assertEqual([d.name for d in merged], ["", ""])
        self.assertEqual([d.name for d in dims.reshaped(merged, (8, 6, 3, 4))], ["batch", "sequence", "", ""])
        self.assertEqual([d.name for d in dims.reshaped(merged, (1, 8, 6, 12))], ["", "batch", "sequence", ""])
        self.assertEqual([d.name for d in dims.reshaped(merged, (6, 8, 12))], ["", "", ""])

    def test_runs_are_the_shortest_equal_stretches(self):
        self.assertEqual(dims.match_runs((4, 6), (4, 2, 3)), [(range(0, 1), range(0, 1)), (range(1, 2), range(1, 3))])
        self.assertEqual(dims.match_runs((4, 1), (4,)), [(range(0, 1), range(0, 1)), (range(1, 2), range(1, 1))])
        with self.assertRaises(ValueError):
            dims.match_runs((4, 6), (5,))


class RewriteTest(unittest.TestCase):

    def setUp(self):
        self.graph = Graph()
        self.x = Value((Dim(8, "batch"), Dim(6)), "f32", "x")
        self.graph.inputs = [self.x]

    def simplified(self, result):
        self.graph.loss = result
        rewrite.simplify(self.graph, no_constant)
        return [node.op for node in self.graph.nodes]

    def test_the_formula_of_rms_norm_becomes_one_operation(self):
        gamma = parameter("gamma", 6)
        square = chain(self.graph, "square", [self.x])
        mean = chain(self.graph, "reduce_mean", [square], axes=[1])
        rsqrt = chain(self.graph, "rsqrt", [chain(self.graph, "add_scalar", [mean], value=1e-6)])
        scale = chain(self.graph, "reshape", [rsqrt], to=(Dim(8, "batch"), Dim(1)))
        self.assertEqual(self.simplified(chain(self.graph, "mul", [gamma, chain(self.graph, "mul", [self.x, scale])])),
                         ["rms_norm"])
        self.assertEqual(self.graph.nodes[0].attrs, {"epsilon": 1e-6})

    def test_the_formulas_of_gelu_become_one_operation_each(self):
        for tanh, name in ((True, "gelu"), (False, "gelu_exact")):
            self.setUp()
            half = chain(self.graph, "scale", [self.x], factor=0.5)
            if tanh:
                cube = chain(self.graph, "scale", [chain(self.graph, "power", [self.x], exponent=3.0)], factor=0.044715)
                total = chain(self.graph, "add", [self.x, cube])
                inner = chain(self.graph, "tanh", [chain(self.graph, "scale", [total], factor=0.7978845608028654)])
            else:
                inner = chain(self.graph, "erf", [chain(self.graph, "scale", [self.x], factor=0.7071067811865476)])
            result = chain(self.graph, "mul", [half, chain(self.graph, "add_scalar", [inner], value=1.0)])
            self.assertEqual(self.simplified(result), [name])

    def test_a_projection_that_is_read_in_parts_is_cut(self):
        w, bias = parameter("w", 9, 6), parameter("b", 9)
        self.graph.parameters = [w, bias]
        y = chain(self.graph, "matmul", [self.x, w, bias], transpose_w=True)
        q, k, v = (chain(self.graph, "slice", [y], axis=1, begin=3 * i, size=3) for i in range(3))
        self.assertEqual(self.simplified(chain(self.graph, "mul", [chain(self.graph, "mul", [q, k]), v])),
                         ["matmul", "matmul", "matmul", "mul", "mul"])
        self.assertEqual([p.name for p in self.graph.parameters], ["w.0", "b.0", "w.1", "b.1", "w.2", "b.2"])
        self.assertEqual(self.graph.parameters[2].cut, Cut("w", (9, 6), 0, 3, 3))

    def test_a_projection_that_is_read_in_parts_of_each_head_is_cut(self):
        w = parameter("w", 12, 6)
        self.graph.parameters = [w]
        y = chain(self.graph, "matmul", [self.x, w], transpose_w=True)
        heads = chain(self.graph, "reshape", [y], to=(Dim(8, "batch"), Dim(2), Dim(6)))
        q, k = (chain(self.graph, "slice", [heads], axis=2, begin=3 * i, size=3) for i in range(2))
        self.assertEqual(self.simplified(chain(self.graph, "mul", [q, k])),
                         ["matmul", "reshape", "matmul", "reshape", "mul"])
        self.assertEqual([p.cut for p in self.graph.parameters],
                         [Cut("w", (2, 6, 6), 1, 0, 3), Cut("w", (2, 6, 6), 1, 3, 3)])
        self.assertEqual([dim.size for dim in self.graph.parameters[0].dims], [6, 6])

    def test_a_projection_of_which_a_part_is_not_read_stays_whole(self):
        w = parameter("w", 9, 6)
        self.graph.parameters = [w]
        y = chain(self.graph, "matmul", [self.x, w], transpose_w=True)
        q, k = (chain(self.graph, "slice", [y], axis=1, begin=3 * i, size=3) for i in range(2))
        self.assertEqual(self.simplified(chain(self.graph, "mul", [q, k]))[0], "matmul")
        self.assertEqual(self.graph.parameters, [w])

    def test_the_base_of_rotary_is_found_and_other_tables_are_not_taken(self):
        import math
        angles = [[p * 500000.0 ** (-(i % 4) / 4) for i in range(8)] for p in range(5)]
        cosines = [[math.cos(a) for a in row] for row in angles]
        sines = [[math.sin(a) for a in row] for row in angles]
        self.assertEqual(rewrite.rotary_base(cosines, sines), 500000.0)
        sines[3][2] += 1e-4
        self.assertIsNone(rewrite.rotary_base(cosines, sines))


class FunctionsTest(unittest.TestCase):

    def model(self, sizes, classes=None):
        """A chain of layers with weights of the given sizes."""
        graph = Graph()
        x = Value((Dim(8, "batch"), Dim(6)), "f32", "x")
        graph.inputs = [x]
        y = x
        for i, activation in enumerate(sizes):
            w = parameter(f"layers.{i}.fc.weight", 6, 6)
            graph.parameters.append(w)
            y = chain(graph, "matmul", [y, w], f"layers.{i}.fc", transpose_w=True)
            y = chain(graph, activation, [y], f"layers.{i}")
        graph.loss = chain(graph, "reduce_mean", [y])
        paths = [f"layers.{i}" for i in range(len(sizes))]
        return functions.cut_into_functions(graph, paths, {path: "Layer" for path in paths})

    def test_equal_layers_share_a_function_and_keep_the_names_of_their_weights(self):
        model = self.model(["relu", "relu"])
        self.assertEqual([function.name for function in model.functions], ["Layer"])
        self.assertEqual(list(model.weights), ["layers.0.fc.weight", "layers.1.fc.weight"])
        text = textproto.to_text(functions.GraphPrinter(model, "net").message())
        self.assertIn('"layers.1" op: "call" function: "Layer" input: ["layers.0.y"] output: ["layers.1.y"]', text)
        self.assertEqual(re.findall(r"_\d+", text), sorted(set(re.findall(r"_\d+", text)), key=lambda t: int(t[1:])))

    def test_different_layers_have_functions_of_their_own(self):
        self.assertEqual([function.name for function in self.model(["relu", "tanh"]).functions], ["Layer", "Layer_2"])


class MapTest(unittest.TestCase):

    def setUp(self):
        self.shapes = {f"h.{i}.{name}": shape for i in range(3)
                       for name, shape in (("fused", (12, 4)), ("conv", (6, 2, 2)), ("norm", (4,)))}
        self.shapes["wte"] = (9, 4)
        self.weights = {"wte": parameter("wte", 9, 4)}
        for i in range(3):
            for k in range(3):
                # Head by head, the parts lie side by side.
                cut = Cut(f"h.{i}.fused", (2, 3, 2, 4), 1, k, 1)
                self.weights[f"h.{i}.fused.{k}"] = Parameter((Dim(4), Dim(4)), "f32", cut=cut)
            self.weights[f"h.{i}.conv"] = Parameter((Dim(6), Dim(4)), "f32", cut=Cut(f"h.{i}.conv", (6, 2, 2)))
            self.weights[f"h.{i}.norm"] = parameter(f"h.{i}.norm", 4)

    def lines(self, aliases=None, buffers=()):
        text = weight_map.map_text("net", self.weights, self.shapes, aliases or {}, buffers)
        return [re.sub(r"\s+", " ", field) for field in re.split(r"\n(?=\w)", text.strip())]

    def test_equal_layers_share_rules(self):
        lines = self.lines()
        self.assertIn('rule { weight: "h.{i}.norm" from { tensor: "h.{i}.norm" } }', lines)
        self.assertIn('rule { weight: "h.{i}.conv" from { tensor: "h.{i}.conv" shape: [6, 2, 2] } reshape: true }',
                      lines)
        self.assertIn('rule { weight: "h.{i}.fused.1" from { tensor: "h.{i}.fused" view: [2, 3, 2, 4] '
                      'range { axis: 1 begin: 1 size: 1 } shape: [12, 4] } reshape: true }', lines)
        self.assertEqual(sum(line.startswith("rule") for line in lines), 6)

    def test_a_layer_of_another_size_has_rules_of_its_own(self):
        self.shapes["h.2.conv"] = (6, 4, 1)
        self.weights["h.2.conv"] = Parameter((Dim(6), Dim(4)), "f32", cut=Cut("h.2.conv", (6, 4, 1)))
        self.assertEqual(sum("conv" in line for line in self.lines()), 3)

    def test_tied_tensors_buffers_and_constants_are_named(self):
        self.weights["constants.0"] = Parameter((Dim(1),), "f32", constant=object())
        lines = self.lines({"head": "wte"}, ["mask"])
        self.assertIn('rule { weight: "wte" from { tensor: "wte" tensor: "head" } }', lines)
        self.assertIn('alias { tensor: "head" same_as: "wte" }', lines)
        self.assertIn('ignore: "mask"', lines)
        self.assertIn('constant: "constants.{i}"', lines)
        self.assertIn('constants_file: "weights.safetensors"', lines)


class InputsTest(unittest.TestCase):

    def read(self, **given):
        return [(v.name, v.dtype, dims.sizes(v.dims)) for v in inputs.declared_inputs(given)]

    def test_names_types_and_sizes_make_inputs(self):
        class Number:
            """A whole number of another library, as NumPy has them."""

            def __index__(self):
                return 4

        self.assertEqual(self.read(tokens=("batch", "s"), x="f32[batch, n=3]", batch=Number(), s=6),
                         [("tokens", "i32", (4, 6)), ("x", "f32", (4, 3))])

    def test_wrong_inputs_are_refused_by_name(self):
        for given, found in (({"batch": "8"}, "size batch: expected a number; found '8'. Try: batch=8"),
                             ({"batch": 0}, "at least 1; found 0"), ({"batch": 8.0}, "batch: expected a size"),
                             ({"batch": 8, "seq": 4}, r"the inputs \(batch\); found no input with the .* \"seq\""),
                             ({"x": "i64[batch]", "batch": 8}, r"found i64. Try: i32\[batch\] \(PyTorch's long is i32"),
                             ({"x": "batch", "batch": 8}, "a type such as"), ({"x": (8,), "batch": 8}, r"found \(8,\)"),
                             ({"x": "f32[batch=2]", "batch": 8}, "expected batch=8, as elsewhere; found batch=2"),
                             ({}, "a size for the dimension \"batch\"")):
            with self.subTest(given=given), self.assertRaisesRegex(weir.Error, found):
                self.read(**{"tokens": ("batch",), **given})
        with self.assertRaisesRegex(weir.Error, "expected the inputs of the model; found none"):
            self.read(batch=8)

    def test_labels_are_inputs_only_of_a_model_that_has_them(self):
        model = types.SimpleNamespace(forward=lambda idx, mask=None: None)
        with self.assertRaisesRegex(weir.Error, "the targets of the loss are called `targets`"):
            inputs.bind_inputs(model, ["tokens", "labels"], False)
        bind, targets = inputs.bind_inputs(model, ["tokens", "targets"], True)
        self.assertEqual((bind([1, 2]), targets), (((), {"idx": 1}), 1))


class FilesTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_tensors_come_back(self):
        tensors = {"a": ("F32", (2, 1), b"12345678"), "b": ("F32", (1,), b"abcd")}
        safetensors_file.write(self.folder / "t.safetensors",
                               {name: (dtype, shape, lambda data=data: data)
                                for name, (dtype, shape, data) in tensors.items()})
        self.assertEqual(safetensors_file.read(self.folder / "t.safetensors"), tensors)

    def test_another_file_is_refused_by_name(self):
        (self.folder / "t.safetensors").write_bytes(b"short")
        with self.assertRaisesRegex(weir.Error, "t.safetensors: expected a safetensors file"):
            safetensors_file.read(self.folder / "t.safetensors")


class Fake:
    """A model as weir.from_torch returns it, without PyTorch: one product on real numbers."""
    model = "fake"
    text = ('name: "fake"\ndim { name: "batch" size: 8 }\ndim { name: "n" size: 4 }\nfunction {\n  name: "main"\n'
            '  input { name: "x" type: "f32[batch, n]" }\n  parameter { name: "w" type: "f32[n, m=3]" decay: true }\n'
            '  node { name: "y" op: "matmul" input: ["x", "w"] }\n  node { name: "z" op: "square" input: "y" }\n'
            '  node { name: "loss" op: "reduce_mean" input: "z" }\n  output: "loss"\n}\nmain: "main"\n')

    def write_weights(self, path):
        safetensors_file.write(path, {"w": ("F32", (4, 3), lambda: b"\0\0\0\x3f" * 12)})

    def weight_map(self):
        return 'rule { weight: "w" from { tensor: "fc.weight" transpose: [1, 0] } }\nignore: "mask"\n'


class JobTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "run"
        environment = mock.patch.dict(os.environ, {"WEIR": PROGRAM})
        environment.start()
        self.addCleanup(environment.stop)

    def test_a_job_trains_and_gives_metrics_and_weights(self):
        job = weir.job(Fake(), data="synthetic", steps=5, mesh="dp=2", rules={"batch": "dp"},
                       optimizer=weir.AdamW(lr=0.1), clip_norm=1.0,
                       schedule=weir.Schedule(warmup_steps=2, decay="cosine", min_lr=0.01), seed=3)
        run = weir.train(job, folder=self.folder, processes=2)
        losses = [metrics["loss"] for metrics in run]
        self.assertEqual(len(losses), 5)
        self.assertLess(losses[-1], losses[0])
        self.assertEqual(safetensors_file.read(self.folder / "trained.safetensors")["w"][:2], ("F32", (4, 3)))

    def test_adapters_train_in_place_of_the_weights_and_merge_into_them(self):
        adapters = weir.Adapters(rank=2, alpha=4, on="w")
        job = weir.job(Fake(), data="synthetic", steps=5, mesh="dp=2", rules={"batch": "dp"}, adapters=adapters,
                       optimizer=weir.AdamW(lr=0.1))
        weir.train(job, folder=self.folder).wait()
        first, trained, merged = (safetensors_file.read(self.folder / name) for name in
                                  ("weights.safetensors", "trained.safetensors", job.merge()))
        self.assertEqual(sorted(trained), ["w", "w.lora_a", "w.lora_b"])
        self.assertEqual(bytes(trained["w"][2]), bytes(first["w"][2]))
        self.assertEqual(trained["w.lora_b"][:2], ("F32", (2, 3)))
        self.assertEqual(list(merged), ["w"])
        w, a, b = (struct.unpack(f"<{len(data) // 4}f", data)
                   for _, _, data in (trained[name] for name in ("w", "w.lora_a", "w.lora_b")))
        expected = [w[3 * i + j] + 2 * sum(a[2 * i + k] * b[3 * k + j] for k in range(2))
                    for i in range(4) for j in range(3)]
        for found, element in zip(struct.unpack("<12f", merged["w"][2]), expected):
            self.assertAlmostEqual(found, element, places=6)
        self.assertNotEqual(bytes(merged["w"][2]), bytes(first["w"][2]))

    def test_adapters_that_do_not_fit_are_refused_by_the_program(self):
        with self.assertRaisesRegex(weir.Error, "W0850"):
            weir.job(Fake(), data="synthetic", steps=1, adapters=weir.Adapters(rank=2, on="v"))
        with self.assertRaisesRegex(weir.Error, "W0851"):
            weir.job(Fake(), data="synthetic", steps=1, adapters=weir.Adapters(rank=9, on="w"))
        with self.assertRaisesRegex(weir.Error, "rank of adapters: expected a whole number"):
            weir.job(Fake(), data="synthetic", steps=1, adapters=weir.Adapters(rank=0))
        with self.assertRaisesRegex(weir.Error, "merge: expected a job that has been written"):
            weir.job(Fake(), data="synthetic", steps=1, adapters=weir.Adapters(rank=2)).merge()

    def test_the_map_beside_a_job_reads_public_names(self):
        weir.job(Fake(), data="synthetic", steps=1).write(self.folder)
        public = self.folder / "public.safetensors"
        safetensors_file.write(public, {"fc.weight": ("F32", (3, 4), lambda: b"\0\0\0\x3f" * 12),
                                        "mask": ("F32", (1,), lambda: bytes(4))})
        done = subprocess.run([PROGRAM, "weights", "check", self.folder / "job.textproto", public],
                              capture_output=True, text=True, check=False)
        self.assertIn("1 weight from 2 tensors, by the map", done.stdout)

    def test_the_errors_of_the_program_come_unchanged(self):
        run = weir.train(weir.job(Fake(), data="synthetic", steps=5, rules={"bach": "dp"}), folder=self.folder,
                         mesh="dp=1000000")
        with self.assertRaisesRegex(weir.Error, r"^weir: W\d{4} (.|\n)*weir explain W\d{4}"):
            run.wait()

    def test_stop_ends_a_run_and_keeps_its_weights(self):
        run = weir.train(weir.job(Fake(), data="synthetic", steps=100000000), folder=self.folder)
        next(iter(run))
        run.stop()
        self.assertIn("w", safetensors_file.read(self.folder / "trained.safetensors"))
        self.assertGreater(run.wait()["step"], 0)

    def endless(self, **options):
        """Starts a run that only a signal ends."""
        return weir.train(weir.job(Fake(), data="synthetic", steps=100000000), **options)

    def test_a_run_ends_when_nothing_holds_it(self):
        run = self.endless(folder=self.folder)
        process = run._process
        next(iter(run))
        self.assertIsNone(process.poll())
        del run
        gc.collect()
        self.assertIsNotNone(process.poll())
        self.assertIn("w", safetensors_file.read(self.folder / "trained.safetensors"))

    def test_a_block_ends_its_run_and_a_folder_of_its_own_is_removed(self):
        with self.endless() as run:
            next(iter(run))
            self.assertTrue((run.folder / "job.textproto").exists())
        self.assertIsNotNone(run._process.poll())
        self.assertFalse(run.folder.exists())
        self.assertEqual(list(run), [])

    def test_a_folder_of_its_own_lasts_as_long_as_its_run(self):
        job = weir.job(Fake(), data="synthetic", steps=2)
        run = weir.train(job)
        run.wait()
        folder = run.folder
        self.assertIn("w", safetensors_file.read(folder / "trained.safetensors"))
        self.assertIsNone(job.folder)
        del run
        gc.collect()
        self.assertFalse(folder.exists())

    def test_a_run_that_cannot_start_leaves_no_folder(self):
        job = weir.job(Fake(), data="synthetic", steps=2)
        with tempfile.TemporaryDirectory() as place, mock.patch.object(tempfile, "tempdir", place):
            with self.assertRaises(TypeError):
                weir.train(job, arguments=3)
            self.assertEqual(os.listdir(place), [])

    def test_a_named_folder_stays(self):
        with self.endless(folder=self.folder) as run:
            next(iter(run))
        self.assertTrue((self.folder / "trained.safetensors").exists())
        self.assertTrue((self.folder / "program.log").exists())

    def test_the_end_of_python_ends_runs(self):
        job = weir.job(Fake(), data="synthetic", steps=100000000)
        job.write(self.folder)
        code = ("import sys, pathlib, weir.runs\njob = weir.Job(None, '')\njob.folder = pathlib.Path(sys.argv[1])\n"
                "run = weir.train(job)\nfor metrics in run:\n    break\nprint(run._process.pid)\n")
        done = subprocess.run([sys.executable, "-c", code, self.folder], check=True, capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
        with self.assertRaises(ProcessLookupError):
            os.kill(int(done.stdout), 0)

    def test_arguments_are_a_list_or_a_text(self):
        job = weir.job(Fake(), data="synthetic", steps=1)
        self.assertEqual(weir.train(job, folder=self.folder, arguments="--steps 3").wait()["step"],
                         weir.train(job, folder=self.folder, arguments=["--steps", 3]).wait()["step"])

    def test_steps_are_at_least_one(self):
        for steps in (0, None, -1, 2.5, "7", True):
            with self.assertRaisesRegex(weir.Error, "steps: expected a whole number that is at least 1; found"):
                weir.job(Fake(), data="synthetic", steps=steps)

    def test_a_job_without_data_warns(self):
        with self.assertWarnsRegex(UserWarning, "has no data, so it trains on random numbers"):
            weir.job(Fake(), steps=1)

    def test_a_call_alone_is_a_cut(self):
        self.assertIn('pipeline { cut: "a" }', weir.job(Fake(), data="synthetic", steps=1, cut="a").text)

    def test_an_optimizer_of_another_library_is_refused(self):
        with self.assertRaisesRegex(weir.Error, r"expected weir.AdamW, .* or weir.Muon; found .*SimpleNamespace"):
            weir.job(Fake(), data="synthetic", steps=1, optimizer=types.SimpleNamespace(lr=1.0))
        with self.assertRaisesRegex(weir.Error, r"Try: weir.AdamW\(lr=3e-4\)"):
            weir.job(Fake(), data="synthetic", steps=1, optimizer=weir.AdamW)

    def test_optimizers_groups_and_averages_become_fields(self):
        muon = weir.Muon(lr=0.02, nesterov=False, adjust_lr_fn="match_rms_adamw", adamw=weir.AdamW(eps=1.0))
        for optimizer, text in ((weir.Lion(betas=(0.5, 0.75)), "lion { beta1: 0.5 beta2: 0.75 weight_decay: 0.0 }"),
                                (weir.Lamb(eps=0.25), "epsilon: 0.25"), (weir.Adafactor(d=2), "clip_threshold: 2.0"),
                                (weir.Adafactor(eps=(0.5, 0.25)), "epsilon1: 0.5"), (muon, "plain: true"),
                                (muon, "adjust: RMS"), (muon, "iterations: 5"), (muon, "epsilon: 1.0"),
                                (weir.Muon(flatten=True), "flatten: true")):
            self.assertIn(text, weir.job(Fake(), data="synthetic", steps=1, optimizer=optimizer).text)
        text = weir.job(Fake(), data="synthetic", steps=1, optimizer=muon, average=0.75, groups=[
            weir.Group(["w", "v*"], optimizer=weir.Sgd()), weir.Group("*.bias", lr=2, weight_decay=0),
            weir.Group("*", frozen=True)]).text
        for part in ('pattern: "w"', 'pattern: "v*"', "sgd {", 'pattern: "*.bias"', "learning_rate: 2.0",
                     "frozen: true", "average { decay: 0.75 }"):
            self.assertIn(part, text)
        text = weir.job(Fake(), data="synthetic", steps=1, average=0.5, evaluate_average=True).text
        self.assertIn("average { decay: 0.5 evaluate: true }", text)
        with self.assertRaisesRegex(weir.Error, "evaluate_average: expected the decay"):
            weir.job(Fake(), data="synthetic", steps=1, evaluate_average=True)
        with self.assertRaisesRegex(weir.Error, "adjust_lr_fn: expected .*; found 'none'"):
            weir.job(Fake(), data="synthetic", steps=1, optimizer=weir.Muon(adjust_lr_fn="none"))

    def test_rules_of_precision_become_fields(self):
        text = weir.job(Fake(), data="synthetic", steps=1, precision="bf16", precision_of=[
            weir.PrecisionRule("f32", op="*norm*"), weir.PrecisionRule("bf16", ["block", "main/y"], op=["add"])]).text
        for part in ('precision_of { op: "*norm*" precision: F32 }',
                     'precision_of { pattern: "block" pattern: "main/y" op: "add" precision: BF16 }'):
            self.assertIn(part, text)

    def test_a_loss_scale_becomes_fields(self):
        for loss_scale, part in ((256, "loss_scale { fixed: 256.0 }"),
                                 ({"initial": 1024, "growth_interval": 50},
                                  "loss_scale { initial: 1024.0 growth_interval: 50 }")):
            text = weir.job(Fake(), data="synthetic", steps=1, precision="f16", loss_scale=loss_scale).text
            self.assertIn("precision: F16", text)
            self.assertIn(part, text)
        with self.assertRaisesRegex(weir.Error, "loss_scale: expected a number, or initial.*found 'first'"):
            weir.job(Fake(), data="synthetic", steps=1, precision="f16", loss_scale={"first": 2})
        with self.assertRaisesRegex(weir.Error, 'precision: expected "f32", "bf16" or "f16"; found \'fp16\''):
            weir.job(Fake(), data="synthetic", steps=1, precision="fp16")

    def test_settings_become_fields(self):
        job = weir.job(Fake(), steps=7, mesh="dp=2,pp=2", rules={"batch": "dp", "n": ("tp", "activations")},
                       data="a.txt", optimizer=weir.Sgd(lr=0.5, momentum=0.9), micro_batches=2, zero_stage=3,
                       precision="bf16", cut=["layers.1"], pipeline_schedule="gpipe")
        for part in ('mesh { axis { name: "dp" size: 2 } axis { name: "pp" size: 2 } }',
                     'rule { dim: "n" axis: "tp" scope: ACTIVATIONS }', 'data { text { path: "a.txt" } }',
                     'pipeline { cut: "layers.1" schedule: GPIPE }', "micro_batches: 2", "zero_stage: 3",
                     "optimizer { sgd { momentum: 0.9 weight_decay: 0.0 } }", "precision: BF16",
                     "schedule { learning_rate: 0.5 }"):
            self.assertIn(part, job.text)

    def test_rules_that_a_search_finds_are_a_wish_of_the_job(self):
        self.assertIn("rules: AUTO", weir.job(Fake(), data="synthetic", steps=1, mesh="dp=2", rules="auto").text)
        with self.assertRaisesRegex(weir.Error, 'expected {dimension: axis} or "auto"; found "automatic"'):
            weir.job(Fake(), data="synthetic", steps=1, mesh="dp=2", rules="automatic")

    def test_a_mesh_of_none_is_one_device(self):
        texts = [weir.job(Fake(), data="synthetic", steps=1, mesh=mesh).text for mesh in (None, "")]
        self.assertEqual(texts[0], texts[1])

    def test_meshes_and_rules_of_other_types_are_refused_by_name(self):
        for arguments, expected in (({"mesh": {"dp": 2}}, "mesh: expected axes such as"),
                                    ({"rules": [("batch", "dp")]}, "rules: expected {dimension: axis}"),
                                    ({"rules": {"batch": None}}, "rule for batch: expected the name of an axis"),
                                    ({"rules": {"batch": ("dp",)}}, "rule for batch: expected the name of an axis"),
                                    ({"rules": {"batch": ("dp", 1)}}, "rule for batch: expected the name of an axis")):
            with self.subTest(arguments=arguments), self.assertRaises(weir.Error) as caught:
                weir.job(Fake(), data="synthetic", steps=1, **arguments)
            self.assertIn(expected, str(caught.exception))

    def test_a_text_that_is_no_mesh_is_refused(self):
        with self.assertRaisesRegex(weir.Error, 'expected axes such as "dp=2,tp=2"; found "dp"'):
            weir.job(Fake(), data="synthetic", steps=1, mesh="dp")


class DataTest(unittest.TestCase):

    def text(self, data):
        return textproto.to_text(data_sources.data_message(data))

    def test_a_path_alone_is_a_text_or_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            kind = lambda name: data_sources.data_message(os.path.join(folder, name))[0][0]
            self.assertEqual([kind("a.txt"), kind("a"), kind("a.npy")], ["text", "text", "tokens"])
            with self.assertRaisesRegex(weir.Error, 'Are they token ids.*"type": "u16"'):
                kind("a.bin")
            pathlib.Path(folder, "a.bin").write_bytes((20240520).to_bytes(4, "little"))
            pathlib.Path(folder, "b.idx").touch()
            self.assertEqual([kind("a.bin"), kind("b.bin")], ["tokens", "tokens"])

    def test_feeds_can_be_bound(self):
        expected = 'synthetic {}\nfeed { input: "targets" from: "tokens" }\n'
        self.assertEqual(self.text({"synthetic": {}, "feed": {"targets": "tokens"}}), expected)
        self.assertEqual(self.text({"synthetic": {}, "feed": [{"input": "targets", "from": "tokens"}]}), expected)

    def test_files_of_tokens_have_a_type_shares_and_several_paths(self):
        for name in ("U16", "u16", Enum("U16")):
            self.assertEqual(self.text({"tokens": {"path": "t.bin", "type": name}}),
                             'tokens { path: "t.bin" type: U16 }\n')
        self.assertEqual(
            self.text({"tokens": {"path": ["a.npy", pathlib.Path("b.npy")], "weight": [1, 0.5], "held_out": 0.1}}),
            'tokens { path: ["a.npy", "b.npy"] weight: [1.0, 0.5] held_out: 0.1 }\n')

    def test_paths_alone_and_images_are_data(self):
        self.assertEqual(self.text(pathlib.Path("a.txt")), 'text { path: "a.txt" }\n')
        self.assertEqual(self.text({"tokens": "t.npy"}), 'tokens { path: "t.npy" }\n')
        self.assertEqual(self.text({"idx": {"images": "i.gz", "labels": "l.gz"}}),
                         'idx { images: "i.gz" labels: "l.gz" }\n')

    def test_other_shapes_are_refused_by_name(self):
        for data, found in (({"tokens": {"path": "t", "type": "I8"}}, "one of FOUND, U16, U32; found 'I8'"),
                            ({"token": {"path": "t"}}, "one kind out of .*; found token"), ({}, "found no kind"),
                            ({"tokens": {"file": "t"}}, 'fields of tokens out of .*; found "file"'),
                            ({"tokens": {"path": 3}}, "tokens.path as a text; found 3"),
                            ({"tokens": {"path": "t", "weight": 3}}, "tokens.weight as a list"),
                            ({"text": ["a", "b"]}, "text as a dictionary"), (["a.txt"], "found builtins.list"),
                            ({"text": "a", "feed": "tokens"}, "feed as .*; found 'tokens'"),
                            ({"text": "a", "feed": [{"idx": "tokens"}]}, "feed as "),
                            (types.SimpleNamespace(shape=(3,)), "found types.SimpleNamespace. Try: data={")):
            with self.subTest(data=data), self.assertRaisesRegex(weir.Error, found):
                self.text(data)

    def test_the_program_reads_tokens_of_a_type(self):
        with tempfile.TemporaryDirectory() as folder:
            tokens = pathlib.Path(folder, "tokens.bin")
            tokens.write_bytes(bytes([1, 0, 2, 0] * 200))
            text = ('dim { name: "b" size: 2 }\nfunction {\n  name: "main"\n'
                    '  input { name: "idx" type: "i32[b, s=4]" }\n'
                    '  parameter { name: "w" type: "f32[v=8, n=4]" }\n'
                    '  node { name: "y" op: "embedding" input: ["w", "idx"] }\n'
                    '  node { name: "loss" op: "reduce_mean" input: "y" }\n  output: "loss"\n}\nmain: "main"\n')
            graph = types.SimpleNamespace(model="rows", text=text)
            job = weir.job(graph, steps=1, data={"tokens": {"path": tokens, "type": "u16"}, "feed": {"idx": "tokens"}})
            path = pathlib.Path(folder, "job.textproto")
            path.write_text(job.text, encoding="utf-8")
            done = subprocess.run([PROGRAM, "train", path], check=False, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)


class Rows:
    """Rows stand for an array of NumPy, which this test does without."""
    dtype, ndim = "int64", 2

    def __init__(self, *shape):
        self.shape = shape

    def __len__(self):
        return self.shape[0]


class ArraysTest(unittest.TestCase):

    def as_text(self, data):
        with mock.patch.object(arrays, "_as_numpy", lambda name, value: value):
            made, sources = arrays.as_files(data, data_sources.KIND_NAMES)
        return textproto.to_text(data_sources.data_message(made)), [source.path for source in sources]

    def test_arrays_become_files_beside_the_job(self):
        text, paths = self.as_text({"ids": Rows(4, 3), "image": Rows(4, 2), "held_out": 0.25,
                                    "scale": {"image": (0.5, -1)}, "feed": {"x": "ids"}})
        self.assertEqual(paths, ["data/ids.npy", "data/image.npy"])
        self.assertEqual(text, 'arrays {\n  array { name: "ids" path: "data/ids.npy" }\n'
                               '  array { name: "image" path: "data/image.npy" }\n  held_out: 0.25\n'
                               '  scale { name: "image" by: 0.5 plus: -1.0 }\n}\nfeed { input: "x" from: "ids" }\n')

    def test_held_out_arrays_have_files_of_their_own(self):
        text, paths = self.as_text({"x": Rows(4, 3), "held_out": {"x": Rows(2, 3)}})
        self.assertEqual(paths, ["data/x.npy", "data/x.held_out.npy"])
        self.assertIn('held_out_path: "data/x.held_out.npy"', text)
        with self.assertRaisesRegex(weir.Error, "held_out: expected an array x, as the data have; found y"):
            self.as_text({"x": Rows(4, 3), "held_out": {"y": Rows(2, 3)}})

    def test_paths_of_arrays_are_whole(self):
        text, paths = self.as_text({"x": "a.npy", "y": ["b.npy", "c.npy"]})
        self.assertEqual(paths, [])
        # A long path may take a line of its own.
        self.assertIn(f'name: "x" path: "{os.path.abspath("a.npy")}"', " ".join(text.split()))

    def test_kinds_stay_kinds(self):
        for data in ({"tokens": "t.npy"}, {"text": "a.txt"}, {"synthetic": {}}, "a.txt"):
            self.assertEqual(arrays.as_files(data, data_sources.KIND_NAMES), (data, []))
        self.assertEqual(data_sources.data_message("a.npz")[0][0], "arrays")

    def test_arrays_of_other_numbers_of_samples_are_refused(self):
        with self.assertRaisesRegex(weir.Error, "array y: expected 4 samples, as array x has; found 3"):
            self.as_text({"x": Rows(4, 3), "y": Rows(3, 3)})
        with self.assertRaisesRegex(weir.Error, "array y: expected an array of NumPy.*found 3"):
            self.as_text({"x": Rows(4, 3), "y": 3})

    def test_arrays_are_written_in_row_major_order(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("no NumPy")
        array = numpy.arange(6, dtype=">f4").reshape(2, 3)
        _, sources = arrays.as_files({"x": array.T}, data_sources.KIND_NAMES)
        with tempfile.TemporaryDirectory() as folder:
            sources[0].write(folder)
            with open(os.path.join(folder, "data/x.npy"), "rb") as file:
                header = file.read(128)
        self.assertIn(b"'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)", header)
        with self.assertRaisesRegex(weir.Error, "array x: .*found a masked array.*x.filled"):
            arrays.as_files({"x": numpy.ma.masked_equal(array, 3)}, data_sources.KIND_NAMES)

    def test_every_input_has_an_array(self):
        text = ('function {\n  name: "block"\n  input { name: "z" type: "f32[b]" }\n}\n'
                'function {\n  name: "main"\n  input { name: "x" type: "f32[b]" }\n'
                '  input { name: "m" type: "bool[b]" }\n}\n')
        check = lambda names, **more: arrays.check_inputs(
            {"arrays": {"array": [{"name": name, "path": "p"} for name in names]}, **more}, text)
        check(["x", "m"])
        check(["x", "mask"], feed={"m": "mask"})
        with self.assertRaisesRegex(weir.Error, 'an array for the input m; found arrays x, mask.*"m": array'):
            check(["x", "mask"])
        arrays.check_inputs({"arrays": {"path": "a.npz"}}, text)
        arrays.check_inputs("book.txt", text)

    def test_targets_that_do_not_count_need_a_loss_that_ignores_them(self):
        source = arrays.Source("data/targets.npy", types.SimpleNamespace(
            dtype=types.SimpleNamespace(kind="i"), size=4, min=lambda: -100))
        arrays.check_ignored([source], 'op: "softmax_cross_entropy" attr { name: "ignore_index" }')
        with self.assertRaisesRegex(weir.Error, r"array targets: .*found -100. Try: weir.from_torch\(..., ign"):
            arrays.check_ignored([source], 'op: "softmax_cross_entropy"')

    def test_a_written_job_names_whole_paths(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(arrays.Source, "write", lambda *_: None):
            job = weir.Job(Fake(), 'data { arrays { array { name: "x" path: "data/x.npy" } } }',
                           [arrays.Source("data/x.npy", None)])
            job.write(folder)
            written = pathlib.Path(folder, "job.textproto").read_text(encoding="utf-8")
            self.assertIn(f'path: "{pathlib.Path(folder).resolve()}/data/x.npy"', written)


class RemedyTest(unittest.TestCase):

    def test_advice_of_the_program_is_said_in_python(self):
        for advice, remedy in (('Try: rule { dim: "batch" axis:\n  "dp" }, or', 'weir.job(..., rules={"batch": "dp"})'),
                               ("Try: ignore_index: -100 on", "weir.from_torch(..., ignore_index=-100)"),
                               ("Try: a larger size", None)):
            expected = f"{advice}\n  In Python: {remedy}" if remedy else advice
            self.assertEqual(remedies.with_remedy(advice), expected)


class TokenFilesTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        return path

    def tokens(self, name):
        data = (self.folder / name).read_bytes()
        return memoryview(data[128:] if name.endswith(".npy") else data).cast("H").tolist()

    def test_documents_end_with_the_separator(self):
        lines = self.write("a.jsonl", b'{"text": "ab"}\n\n{"text": "", "id": 1}\n{"text": "c"}\n')
        built = weir.build_tokens([lines, self.write("b.txt", b"d\n")], self.folder / "t.bin")
        self.assertEqual(self.tokens("t.bin"), [97, 98, 0, 99, 0, 100, 10, 0])
        self.assertEqual(built["files"][0]["documents"], 3)
        weir.build_tokens(lines, self.folder / "t.bin", separator="none")
        self.assertEqual(self.tokens("t.bin"), [97, 98, 99])

    def test_held_out_documents_are_drawn_and_nothing_is_lost(self):
        lines = self.write("a.jsonl", b"".join(b'{"text": "%d"}\n' % i for i in range(100)))
        parts = []
        for seed in (1, 1, 2):
            weir.build_tokens(lines, self.folder / "t.npy", held_out=0.3, seed=seed)
            parts.append([bytes(self.tokens(name)) for name in ("t.npy", "t.held_out.npy")])
        self.assertEqual(parts[0], parts[1])
        self.assertNotEqual(parts[0], parts[2])
        documents = sorted(b"".join(parts[0]).split(b"\0")[:-1], key=int)
        self.assertEqual(documents, [b"%d" % i for i in range(100)])
        self.assertTrue(15 < parts[0][1].count(b"\0") < 45)

    def test_a_text_is_cut_between_lines_and_characters(self):
        text = ("é✓𝄞x" * 120000 + "\n") * 2 + "end"
        path = self.write("a.txt", text.encode())
        with open(path, "rb") as file:
            pieces = list(token_files._text_pieces(str(path), file, os.path.getsize(path), False))
        self.assertGreater(len(pieces), 2)
        self.assertEqual("".join(pieces), text)
        weir.build_tokens(path, self.folder / "t.bin", held_out=0.4, separator="none")
        self.assertEqual(bytes(self.tokens("t.bin") + self.tokens("t.held_out.bin")), text.encode())
        self.assertEqual(bytes(self.tokens("t.held_out.bin")), b"end")

    def test_what_cannot_be_built_leaves_no_file(self):
        lines = self.write("a.jsonl", b'{"text": "ab"}\n{"body": "c"}\n')
        bad = self.write("bad.jsonl", b"{oops\n")
        out = self.folder / "t.npy"
        for inputs, options, found in (
                (lines, {}, 'W0797 at .*line 2: expected an object with a text "text"; found body'),
                (bad, {}, "W0797 at .*line 1: expected an object of JSON"),
                (self.folder / "none", {}, "W0797 .*no such file"),
                (self.write("empty.txt", b""), {}, "W0799 .*at least one token"),
                (lines, {"tokenizer": self.folder}, "W0798 .*a folder with tokenizer.json"),
                (lines, {"separator": "xy"}, "W0798 .*a token of bytes"),
                (lines, {"held_out": 1}, "W0799 .*a share"), (lines, {"type": "u8"}, "W0799 .*u16 or u32")):
            with self.subTest(found=found), self.assertRaisesRegex(weir.Error, found):
                weir.build_tokens(inputs, out, **options)
        with self.assertRaisesRegex(weir.Error, "W0799 .*which would be lost"):
            own = self.write("own.bin", b"text")
            weir.build_tokens(own, own)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["a.jsonl", "bad.jsonl", "empty.txt", "own.bin"])

    def test_a_tokenizer_of_a_library_encodes_pieces_in_order(self):
        library = types.ModuleType("tokenizers")
        words = {"<|endoftext|>": 70000, "a": 1, "b": 2}
        library.Tokenizer = types.SimpleNamespace(from_file=lambda path: types.SimpleNamespace(
            no_truncation=lambda: None, no_padding=lambda: None, token_to_id=words.get,
            get_vocab=lambda with_added_tokens: words,
            encode_batch=lambda pieces, add_special_tokens: [
                types.SimpleNamespace(ids=[words[word] for word in piece.split()]) for piece in pieces]))
        lines = self.write("a.jsonl", b'{"text": "a b"}\n{"text": "b"}\n')
        model = self.write("tokenizer.json", b"{}")
        with mock.patch.dict(sys.modules, {"tokenizers": library}):
            built = weir.build_tokens(lines, self.folder / "t.bin", tokenizer=model)
        self.assertEqual(memoryview((self.folder / "t.bin").read_bytes()).cast("I").tolist(),
                         [1, 2, 70000, 2, 70000])
        self.assertEqual((built["type"], token_files.data_text(built)),
                         ("u32", f'data {{ tokens {{ path: "{self.folder}/t.bin" type: U32 }} }}'))
        with mock.patch.dict(sys.modules, {"tokenizers": None}):
            with self.assertRaisesRegex(weir.Error, "W0798 .*the Python library tokenizers.*pip install tokenizers"):
                weir.build_tokens(lines, self.folder / "t.bin", tokenizer=model)


class ProgramTest(unittest.TestCase):

    def test_a_missing_program_is_named(self):
        with mock.patch.dict(os.environ, {"WEIR": "/no/such/weir"}):
            with self.assertRaisesRegex(weir.Error, "found no program /no/such/weir"):
                program.find_program()

    def test_the_program_in_the_path_is_found(self):
        with mock.patch.dict(os.environ, {"PATH": os.path.dirname(PROGRAM)}):
            os.environ.pop("WEIR", None)
            self.assertEqual(os.path.realpath(program.find_program()), os.path.realpath(PROGRAM))


class VersionTest(unittest.TestCase):

    def test_old_versions_are_refused_and_new_ones_are_not(self):
        for version in ("1.13.0", "2.4.1+cu121"):
            with self.assertRaisesRegex(weir.Error, f"expected PyTorch 2.5 or later.*{re.escape(version)}"):
                check_version(version)
        for version in ("2.5.0", "2.15.0+cpu", "3.0.0a0"):
            check_version(version)

    def test_from_torch_refuses_an_old_or_missing_pytorch(self):
        old = types.ModuleType("torch")
        old.__version__ = "1.13.1"
        with mock.patch.dict(sys.modules, {"torch": old}):
            with self.assertRaisesRegex(weir.Error, "found PyTorch 1.13.1"):
                weir.from_torch(None)
        with mock.patch.dict(sys.modules, {"torch": None}):
            with self.assertRaisesRegex(weir.Error, "expected PyTorch 2.5 or later; found none"):
                weir.from_torch(None)

    def test_importing_the_package_needs_no_pytorch(self):
        code = "import sys; sys.modules['torch'] = None; import weir; weir.AdamW()"
        subprocess.run([sys.executable, "-c", code], check=True,
                       env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})


if __name__ == "__main__":
    unittest.main()

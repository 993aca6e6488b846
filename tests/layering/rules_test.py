"""Tests that each rule finds a violation planted for the rule, and lets the lawful twin of the violation pass."""

import unittest

from tests.layering import definition_rules
from tests.layering import include_rules
from tests.layering import mutex_rules
from tests.layering import style_rules
from tests.layering import visibility_rules
from tests.layering.source_tree import SourceTree, includes_of

MARK = "TO" + "DO"


def tree_of(**texts):
    """Returns a tree of keyword files: sbp__layout_h="..." is the file sbp/layout.h."""
    suffixes = ("h", "cc", "cu", "proto", "md", "py")
    files = {}
    for name, text in texts.items():
        path = name.replace("__", "/")
        stem, _, suffix = path.rpartition("_")
        files[f"{stem}.{suffix}" if suffix in suffixes else path] = text
    return SourceTree(files)


class PlantedViolationTest(unittest.TestCase):
    def assert_found(self, violations, *fragments):
        self.assertTrue(violations, "the planted violation was not found")
        for fragment in fragments:
            self.assertIn(fragment, "\n".join(violations))

    def assert_include(self, rule, path, include, lawful):
        tree = SourceTree({path: f'// A.\n#include {include}\n'})
        violations = rule(tree)
        if lawful:
            self.assertEqual(violations, [])
        else:
            self.assert_found(violations, f"{path}:2")


class IncludeRulesTest(PlantedViolationTest):
    def test_includes_are_read_with_line_and_quote(self):
        self.assertEqual(includes_of('// x\n#include "a/b.h"\n  #  include <c>\n// #include "no.h"\n'),
                         [(2, '"', "a/b.h"), (3, "<", "c")])

    def test_every_edge_against_the_dag_is_found(self):
        lawful = {
            "proto": {"proto"},
            "runtime/base": {"proto", "runtime/base"},
            "runtime/device": {"proto", "runtime/base", "runtime/device"},
            "sbp": {"proto", "runtime/base", "sbp"},
            "ops/defs": {"proto", "runtime/base", "sbp", "ops/defs"},
            "ops/kernels": {"proto", "runtime/base", "runtime/device", "ops/kernels"},
            "compiler": {"proto", "runtime/base", "sbp", "ops/defs", "compiler"},
            "actors": {"proto", "runtime/base", "runtime/device", "ops/kernels", "actors"},
            "tools": {"proto", "runtime/base", "runtime/device", "sbp", "ops/defs", "ops/kernels", "compiler", "actors",
                      "tools"},
        }
        lawful["tests"] = set(lawful) | {"tests"}
        for source, targets in lawful.items():
            for target in lawful:
                with self.subTest(source=source, target=target):
                    self.assert_include(include_rules.check_direction, f"{source}/x.cc", f'"{target}/y.h"',
                                        target in targets)

    def test_angle_brackets_hide_nothing(self):
        self.assert_include(include_rules.check_direction, "compiler/x.cc", "<actors/y.h>", lawful=False)

    def test_a_test_beside_its_source_obeys_too(self):
        self.assert_include(include_rules.check_direction, "compiler/x_test.cc", '"actors/y.h"', lawful=False)

    def test_a_file_outside_the_house_is_found(self):
        self.assert_found(include_rules.check_direction(tree_of(lib__x_cc="")), "lib/x.cc")

    def test_a_schema_outside_proto_or_with_a_foreign_import_is_found(self):
        self.assert_found(include_rules.check_direction(tree_of(sbp__x_proto="")), "sbp/x.proto")
        self.assert_found(include_rules.check_direction(tree_of(proto__x_proto='import "sbp/y.proto";')), "sbp/y.proto")
        self.assertEqual(
            include_rules.check_direction(tree_of(proto__x_proto='import "google/protobuf/any.proto";')), [])

    def test_each_library_is_held_to_its_home(self):
        for header, home, stranger in [
            ('"caf/all.hpp"', "actors/engine/caf_engine.cc", "actors/protocol/x.cc"),
            ('"ucp/api/ucp.h"', "runtime/transport/ucx_transport.cc", "runtime/transport/loopback.cc"),
            ("<cuda_runtime.h>", "runtime/device/cuda_device.cc", "runtime/device/cpu_device.cc"),
            ("<cublasLt.h>", "ops/kernels/cuda/cublaslt_library.h", "ops/kernels/cpu/matmul.cc"),
            ("<nccl.h>", "runtime/collective/nccl_communicator.cc", "runtime/device/cuda_device.cc"),
            ('"oneapi/dnnl/dnnl.hpp"', "ops/kernels/cpu/matmul.cc", "ops/kernels/kernel.cc"),
            ('"dnnl.hpp"', "ops/kernels/cpu/matmul.cc", "compiler/x.cc"),
            ('"hwy/highway.h"', "ops/kernels/cpu/gelu.cc", "sbp/x.cc"),
            ('"grpcpp/grpcpp.h"', "runtime/control/server.cc", "runtime/transport/x.cc"),
            ('"CLI/CLI.hpp"', "tools/weir.cc", "compiler/x.cc"),
            ('"gtest/gtest.h"', "sbp/layout_test.cc", "sbp/layout.cc"),
        ]:
            with self.subTest(header=header):
                self.assert_include(include_rules.check_libraries, home, header, lawful=True)
                self.assert_include(include_rules.check_libraries, stranger, header, lawful=False)

    def test_a_clock_in_the_protocol_is_found(self):
        for header in ("<thread>", "<chrono>", "<random>", '"absl/synchronization/mutex.h"', '"runtime/base/clock.h"',
                       '"runtime/device/device.h"'):
            with self.subTest(header=header):
                self.assert_include(include_rules.check_protocol_is_pure, "actors/protocol/x.cc", header, lawful=False)
        self.assert_include(include_rules.check_protocol_is_pure, "actors/protocol/x.cc", '"runtime/base/ids.h"',
                            lawful=True)
        self.assert_include(include_rules.check_protocol_is_pure, "actors/engine/x.cc", "<thread>", lawful=True)

    def test_a_pass_that_reads_the_message_of_a_job_is_found(self):
        check = include_rules.check_job_is_read_at_the_edge
        for path in ("compiler/passes/x.cc", "compiler/ir/x.h", "compiler/x.cc"):
            self.assert_include(check, path, '"proto/job.pb.h"', lawful=False)
        for path in ("compiler/job/x.h", "compiler/dims/x.h", "compiler/compile.h", "compiler/passes/x_test.cc", "tools/x.cc"):
            self.assert_include(check, path, '"proto/job.pb.h"', lawful=True)

    def test_an_include_that_does_not_exist_is_found(self):
        self.assert_found(include_rules.check_paths(tree_of(sbp__x_cc='#include "sbp/gone.h"\n')), "sbp/x.cc:1")
        self.assertEqual(
            include_rules.check_paths(tree_of(sbp__x_cc='#include "proto/a.pb.h"\n', proto__a_proto="")), [])

    def test_an_include_beside_the_file_is_found(self):
        self.assert_found(
            include_rules.check_paths(tree_of(sbp__x_cc='#include "y.h"\n', sbp__y_h="// Y.\n")), "sbp/y.h")

    def test_a_source_that_hides_its_header_is_found(self):
        texts = {"sbp/x.h": "// X.\n", "sbp/x.cc": '#include <vector>\n#include "sbp/x.h"\n'}
        self.assert_found(include_rules.check_paths(SourceTree(texts)), "sbp/x.cc:1")
        texts["sbp/x.cc"] = '#include "sbp/x.h"\n#include <vector>\n'
        self.assertEqual(include_rules.check_paths(SourceTree(texts)), [])

    def test_cycles_among_files_and_folders_are_found(self):
        self.assert_found(
            include_rules.check_cycles(tree_of(sbp__x_h='#include "sbp/y.h"\n', sbp__y_h='#include "sbp/x.h"\n')),
            "sbp/x.h -> sbp/y.h -> sbp/x.h")
        folders = {
            "runtime/device/a.h": '#include "runtime/memory/b.h"\n',
            "runtime/memory/b.h": "",
            "runtime/memory/c.h": '#include "runtime/device/d.h"\n',
            "runtime/device/d.h": "",
        }
        self.assert_found(include_rules.check_cycles(SourceTree(folders)),
                          "runtime/device -> runtime/memory -> runtime/device")
        folders["runtime/memory/c.h"] = ""
        self.assertEqual(include_rules.check_cycles(SourceTree(folders)), [])


class DefinitionRulesTest(PlantedViolationTest):
    def test_two_types_of_one_name_in_one_namespace_are_found(self):
        header = "// A.\n#pragma once\nnamespace weir {\nstruct Rect {\n  int a;\n};\n}  // namespace weir\n"
        for other in ("class Rect final : public Shape {};", "enum class Rect : uint8_t { kA };",
                      "struct Rect { enum E { kB } e; };"):
            tree = tree_of(sbp__x_h=header, ops__y_cc="namespace weir {\n" + other + "\n}\n")
            self.assert_found(definition_rules.check_one_definition(tree), "weir::Rect", "ops/y.cc and in sbp/x.h")

    def test_types_that_cannot_meet_are_lawful(self):
        header = "// A.\n#pragma once\nnamespace weir {\nclass Rect {};\n}\n"
        for other in ("class Rect;", "namespace {\nclass Rect {};\n}", "struct Other {\n  class Rect {};\n};",
                      "class Rect::Impl {};", "void F() {\n  struct Rect {};\n}", "namespace ops {\nclass Rect {};\n}",
                      "// class Rect {};", "enum class Turn { kA };"):
            tree = tree_of(sbp__x_h=header, ops__y_cc="namespace weir {\n" + other + "\n}\n")
            self.assertEqual(definition_rules.check_one_definition(tree), [], other)


    def test_names_outside_the_namespace_of_their_folder_are_found(self):
        for path, space in (("sbp/x.h", "weir"), ("sbp/x.h", "weir::ops"), ("runtime/store/x.cc", "weir::runtime"),
                            ("runtime/base/x.h", "weir::base"), ("ops/kernels/x.h", "weir::ops")):
            tree = SourceTree({path: f"// A.\nnamespace {space} {{\nclass A {{}};\n}}  // namespace {space}\n"})
            self.assert_found(definition_rules.check_namespaces(tree), path, space)
        tree = SourceTree({"proto/x.proto": "package weir;\n"})
        self.assert_found(definition_rules.check_namespaces(tree), "proto/x.proto", "weir.proto")

    def test_namespaces_of_the_folder_and_forward_declarations_are_lawful(self):
        for path, space in (("sbp/x.h", "weir::sbp"), ("compiler/ir/x.h", "weir::compiler"),
                            ("tools/x.cc", "weir::cli"), ("runtime/base/x/x.h", "weir"),
                            ("actors/plan/x.h", "weir::actors::plan_reader")):
            text = f"namespace weir::other {{\nclass B;\nstruct C;\n}}\nnamespace {space} {{\nclass A {{}};\n}}\n"
            tree = SourceTree({path: text, "proto/x.proto": "package weir.proto;\n"})
            self.assertEqual(definition_rules.check_namespaces(tree), [], path)


class MutexRulesTest(PlantedViolationTest):
    def test_a_lock_without_annotations_is_found(self):
        for lock in ("std::mutex m;", "std::shared_mutex m;", "std::lock_guard<Mutex> l(m);", "absl::Mutex m;",
                     "std::condition_variable_any c;"):
            with self.subTest(lock=lock):
                self.assert_found(mutex_rules.check_mutex_types(tree_of(sbp__x_cc="\n" + lock)), "sbp/x.cc:2")
        self.assertEqual(mutex_rules.check_mutex_types(tree_of(sbp__x_cc="Mutex m;  // no std::mutex\n")), [])
        self.assertEqual(mutex_rules.check_mutex_types(SourceTree({"runtime/base/mutex.h": "std::mutex m_;"})), [])

    def test_a_mutex_that_guards_nothing_is_found(self):
        for mutex in ("Mutex mutex_;", "  mutable Mutex mutex_;  // guards a_", "static weir::Mutex mutex_;"):
            for member in ("int a_;", "int a_ ABSL_GUARDED_BY(other_mutex_);"):
                with self.subTest(mutex=mutex, member=member):
                    tree = tree_of(sbp__x_cc=f"\n{mutex}\n{member}\n")
                    self.assert_found(mutex_rules.check_mutexes_guard(tree), "sbp/x.cc:2")
        for text in ("Mutex mutex_;\nint a_ ABSL_GUARDED_BY(mutex_) = 0;\n",
                     "Mutex mutex_;\nint* const a_ ABSL_PT_GUARDED_BY(mutex_);\n",
                     "// Guards no member: the mutex\n// orders writes.\nMutex m;\n",
                     "Mutex m;  // guards no member: the mutex orders writes\n",
                     "void Wait(Mutex* mutex);\n"):
            with self.subTest(text=text):
                self.assertEqual(mutex_rules.check_mutexes_guard(tree_of(sbp__x_h=text)), [])

    def test_a_guarded_member_that_others_can_touch_is_found(self):
        self.assert_found(
            mutex_rules.check_guarded_members_are_private(tree_of(sbp__x_h="\nint a ABSL_GUARDED_BY(mutex);\n")),
            "sbp/x.h:2")
        for name, text in (("sbp__x_h", "int a_ ABSL_GUARDED_BY(mutex_);\n"),
                           ("sbp__x_cc", "int a ABSL_GUARDED_BY(mutex);\n")):
            self.assertEqual(mutex_rules.check_guarded_members_are_private(tree_of(**{name: text})), [])


class StyleRulesTest(PlantedViolationTest):
    def test_a_long_file_is_found(self):
        self.assert_found(style_rules.check_length(tree_of(sbp__x_cc="\n" * 801), {}), "801")
        self.assert_found(style_rules.check_length(tree_of(sbp__x_h="\n" * 401), {}), "401")
        self.assertEqual(style_rules.check_length(tree_of(sbp__x_cc="\n" * 800, sbp__x_h="\n" * 400), {}), [])

    def test_the_allow_list_may_only_shrink(self):
        tree = tree_of(sbp__x_cc="\n" * 900)
        self.assertEqual(style_rules.check_length(tree, {"sbp/x.cc": 900}), [])
        self.assert_found(style_rules.check_length(tree, {"sbp/x.cc": 899}), "may only shrink")
        self.assert_found(style_rules.check_length(tree, {"sbp/x.cc": 950}), "lower its entry")
        self.assert_found(style_rules.check_length(tree_of(sbp__x_cc=""), {"sbp/x.cc": 900}), "take it off")
        self.assert_found(style_rules.check_length(tree, {"sbp/x.cc": 900, "sbp/y.cc": 900}), "not in the tree")
        self.assertEqual(style_rules.parse_allow_list("# c\nsbp/x.cc 900  # why\n\n"), {"sbp/x.cc": 900})

    def test_names_without_a_concept_are_found(self):
        for path in ("sbp/shape_util.cc", "sbp/helper.h", "runtime/common/x.cc", "actors/actor_manager.cc",
                     "tests/misc/a.txt"):
            with self.subTest(path=path):
                self.assert_found(style_rules.check_names(SourceTree({path: ""})), path)
        self.assertEqual(style_rules.check_names(tree_of(sbp__utility_of_split_cc="", sbp__commonality_h="")), [])
        self.assert_found(style_rules.check_names(tree_of(sbp__Layout_cc="")), "snake_case")

    def test_types_without_a_concept_are_found(self):
        for text in ("class ActorManager {", "struct ShapeHelper;\nstruct ShapeHelper final : Base {",
                     "enum class MiscKind {"):
            with self.subTest(text=text):
                self.assert_found(style_rules.check_names(tree_of(sbp__x_h=text)), "sbp/x.h")
        self.assertEqual(style_rules.check_names(tree_of(sbp__x_h="class Management {};\nclass Actor {};")), [])

    def test_a_header_without_comment_or_guard_is_found(self):
        self.assert_found(style_rules.check_headers(tree_of(sbp__x_h="#pragma once\n// Late.\n")),
                          "opens with a comment")
        self.assert_found(style_rules.check_headers(tree_of(sbp__x_h="//\n#pragma once\n")), "opens with a comment")
        self.assert_found(style_rules.check_headers(tree_of(sbp__x_h="// X.\n")), "double inclusion")
        self.assert_found(
            style_rules.check_headers(tree_of(sbp__x_h="// X.\n#pragma once\nusing namespace std;\n")), "namespace")
        self.assertEqual(style_rules.check_headers(tree_of(sbp__x_h="// X.\n#pragma once\n")), [])

    def test_a_part_compiled_per_instruction_set_is_guarded_by_its_toggle(self):
        part = {"ops/kernels/cpu/x-inl.h": "// X.\n#if defined(X_INL) == defined(HWY_TARGET_TOGGLE)\n"}
        self.assertEqual(style_rules.check_headers(SourceTree(part)) + style_rules.check_names(SourceTree(part)), [])
        part = {"ops/kernels/cpu/x-inl.h": "// X.\n#pragma once\n"}
        self.assert_found(style_rules.check_headers(SourceTree(part)), "HWY_TARGET_TOGGLE")

    def test_a_mark_without_its_issue_is_found(self):
        for text in (f"// {MARK}: later", f"// {MARK}(me): later", f"# {MARK}(#7) later", "// FIX" + "ME"):
            with self.subTest(text=text):
                self.assert_found(style_rules.check_marks(tree_of(sbp__x_cc=text)), "sbp/x.cc:1")
        self.assertEqual(style_rules.check_marks(tree_of(sbp__x_cc=f"// {MARK}(#7): drop after 2.0")), [])

    def test_a_broken_link_is_found(self):
        page = "# A page\n[a](b.md) [c](#a-page) [d](https://example.org) `[e](gone)`\n```\n[f](gone)\n```\n"
        self.assertEqual(style_rules.check_links(tree_of(docs__a_md=page, docs__b_md="")), [])
        self.assert_found(style_rules.check_links(tree_of(docs__a_md=page)), "docs/a.md:2", "b.md")
        for link in ("gone.md", "#gone", "b.md#gone", "/docs/b.md", "../sbp/gone.h"):
            with self.subTest(link=link):
                self.assert_found(
                    style_rules.check_links(tree_of(docs__a_md=f"# A\n\n[x]({link})\n", docs__b_md="# B\n")),
                    "docs/a.md:3")


class VisibilityRulesTest(PlantedViolationTest):
    BASE = 'weir_cc_library(\n    name = "base",\n    visibility = [%s],\n)\n'
    USER = 'weir_cc_library(\n    name = "sbp",\n    deps = ["//runtime/base"],\n)\n'

    def test_a_public_target_without_a_reason_is_found(self):
        public = self.BASE % '"//visibility:public"'
        found = visibility_rules.check_targets_are_private(SourceTree({"runtime/base/BUILD": public}))
        self.assert_found(found, "runtime/base/BUILD:3")
        reason = "# Public: every test uses the target.\n"
        self.assertEqual(visibility_rules.check_targets_are_private(SourceTree({"sbp/BUILD": reason + public})), [])

    def test_a_default_for_all_targets_is_found(self):
        for default in ("//visibility:public", "//tests:__subpackages__"):
            build = f'package(default_visibility = ["{default}"])\n'
            self.assert_found(visibility_rules.check_targets_are_private(SourceTree({"sbp/BUILD": build})), "sbp/BUILD:1")

    def test_a_visibility_that_no_package_uses_is_found(self):
        for entry in ("//sbp:__pkg__", "//sbp:__subpackages__"):
            base = {"runtime/base/BUILD": self.BASE % f'"{entry}"'}
            used = SourceTree({**base, "sbp/BUILD": self.USER})
            self.assertEqual(visibility_rules.check_visibility_names_users(used), [])
            for other in ("# deps: //runtime/base\n", self.USER.replace("//runtime/base", "//runtime/base:mutex")):
                unused = SourceTree({**base, "sbp/BUILD": other})
                self.assert_found(visibility_rules.check_visibility_names_users(unused), "base", entry)


if __name__ == "__main__":
    unittest.main()

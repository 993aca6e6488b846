"""Defines mutants of C++ sources, and the copies of the sources that contain all mutants.

A mutant is a wrong version of the product's code. It is a list of edits, and an edit names a fragment of one source and
what takes its place. The sources themselves know nothing of mutants. A copy contains every mutant behind a switch
(mutant_switch.h), so that one compilation of the copies serves all mutants.

A fragment must occur exactly once in its source. White space in a fragment matches any white space, so a fragment
outlives a change of format.
"""

import dataclasses
import re

# tests/chaos has two ways to kill a mutant: to play the standard plans under seeds, and to run a test program that is
# built on the copies: the unit tests of the message ledger or of the CUDA device, or the simulation of recovery.
CHAOS = "chaos"
LEDGER_TEST = "message_ledger_test"
CUDA_DEVICE_TEST = "cuda_device_test"
RECOVERY_TEST = "recovery_test"
KILLERS = (CHAOS, LEDGER_TEST, CUDA_DEVICE_TEST, RECOVERY_TEST)

SWITCH = '#include "tests/chaos/mutant_switch.h"\n'
_ON = "::weir::chaos::MutantIsOn({})"
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_INCLUDE = re.compile(r'^(#include ")([^"]+)(")', re.MULTILINE)


class MutationError(Exception):
    """A catalogue that does not fit its sources. The text has a line for each thing that is wrong."""


@dataclasses.dataclass(frozen=True)
class Edit:
    """Edits `path`: where `fragment` stands, the mutant has `replacement`."""
    path: str
    fragment: str
    replacement: str


class Expression(Edit):
    """The fragment and the replacement are whole expressions of one type."""


class Statement(Edit):
    """The fragment and the replacement are whole statements that declare nothing. The replacement may be empty."""


class Before(Edit):
    """The replacement is executed before the statement with which the fragment begins."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A Mutant has an id in lower case with hyphens, a sentence that says what is wrong, and the test that kills it."""
    id: str
    what: str
    edits: tuple
    killed_by: str = CHAOS


def find_fragment(text, fragment):
    """Returns [(start, end)] of all places of `fragment` in `text`. A name in the fragment matches whole names only."""
    pattern = r"\s+".join(re.escape(word) for word in fragment.split())
    if re.match(r"\w", fragment.lstrip()):
        pattern = r"(?<!\w)" + pattern
    if re.search(r"\w$", fragment.rstrip()):
        pattern += r"(?!\w)"
    return [match.span() for match in re.finditer(pattern, text)]


def check_mutants(mutants, texts):
    """Returns what is wrong with a catalogue as lines of text. `texts` maps the path of each source to its text."""
    errors = []
    for name in sorted({mutant.id for mutant in mutants if [m.id for m in mutants].count(mutant.id) > 1}):
        errors.append(f"{name}: two mutants have this id")
    for mutant in mutants:
        if not _ID.fullmatch(mutant.id):
            errors.append(f"{mutant.id}: an id is lower-case words with hyphens between them")
        if not re.fullmatch(r"[A-Z][^\n\"\\]*\.", mutant.what):
            errors.append(f"{mutant.id}: `what` is a sentence on one line, without quotes; found '{mutant.what}'")
        if mutant.killed_by not in KILLERS:
            errors.append(f"{mutant.id}: killed by one of {', '.join(KILLERS)}; found '{mutant.killed_by}'")
        if not mutant.edits:
            errors.append(f"{mutant.id}: a mutant has at least one edit")
        for edit in mutant.edits:
            errors += [f"{mutant.id}: {error}" for error in _check_edit(edit, texts)]
    return errors


def _check_edit(edit, texts):
    errors = []
    if edit.path not in texts:
        return [f"{edit.path} is not among the sources that have mutants"]
    fragment, replacement = edit.fragment.strip(), edit.replacement.strip()
    count = len(find_fragment(texts[edit.path], fragment)) if fragment else 0
    if count != 1:
        errors.append(f"expected one place in {edit.path}; found {count} of '{fragment}'")
    if fragment == replacement and not isinstance(edit, Before):
        errors.append(f"'{fragment}' is replaced by itself")
    if isinstance(edit, Expression) and (not replacement or replacement.endswith(";")):
        errors.append(f"an expression is replaced by an expression; found '{replacement}'")
    if isinstance(edit, Statement) and not fragment.endswith((";", "}")):
        errors.append(f"a statement ends with ';' or '}}'; found '{fragment}'")
    if not isinstance(edit, Expression) and replacement and not replacement.endswith((";", "}")):
        errors.append(f"a statement ends with ';' or '}}'; found '{replacement}'")
    if isinstance(edit, Before) and not replacement:
        errors.append(f"nothing is executed before '{fragment}'")
    return errors


def _guarded(edits, original):
    """Returns the code for the edits of one place: [(number of the mutant, edit)], all of one kind."""
    arms = [(_ON.format(number), edit.replacement.strip()) for number, edit in edits]
    if isinstance(edits[0][1], Expression):
        return "(" + "".join(f"{on} ? ({code}) : " for on, code in arms) + f"({original}))"
    if isinstance(edits[0][1], Statement):
        return "{ " + "".join(f"if ({on}) {{ {code} }} else " for on, code in arms) + f"{{ {original} }} }}"
    return "".join(f"if ({on}) {{ {code} }} " for on, code in arms)


def rewrite(path, texts, mutants, folder):
    """Returns the copy of a source. It contains the mutants of `mutants` and includes the other copies in `folder`.

    A mutant's number is its place in `mutants`. Raises MutationError if edits of different places or kinds overlap.
    """
    text = texts[path]
    places = {}
    for number, mutant in enumerate(mutants):
        for edit in mutant.edits:
            if edit.path == path:
                (start, end), = find_fragment(text, edit.fragment)
                if isinstance(edit, Before):
                    end = start
                places.setdefault((start, end), []).append((number, edit))
    done = 0
    parts = []
    for (start, end), edits in sorted(places.items()):
        if start < done or len({type(edit) for _, edit in edits}) > 1:
            raise MutationError(f"{path}: the edits of {', '.join(mutants[number].id for number, _ in edits)} and of "
                                "another mutant overlap; give them the same fragment and kind")
        parts += [text[done:start], _guarded(edits, text[start:end])]
        done = end
    text = "".join(parts) + text[done:]
    if places:
        first = re.search(r"^#include", text, re.MULTILINE).start()
        text = text[:first] + SWITCH + text[first:]
    return _INCLUDE.sub(lambda match: match[1] + (f"{folder}/{match[2]}" if match[2] in texts else match[2]) + match[3],
                        text)


def catalogue_source(mutants):
    """Returns the C++ source of the function MutantCatalogue of mutant_catalogue.h."""
    rows = "".join(f'    {{"{mutant.id}", "{mutant.what}", "{mutant.killed_by}"}},\n' for mutant in mutants)
    return ('#include "tests/chaos/mutant_catalogue.h"\n\n'
            "namespace weir::chaos {\nnamespace {\n\n"
            f"constexpr Mutant kMutants[] = {{\n{rows}}};\n\n"
            "}  // namespace\n\n"
            "absl::Span<const Mutant> MutantCatalogue() { return kMutants; }\n\n"
            "}  // namespace weir::chaos\n")

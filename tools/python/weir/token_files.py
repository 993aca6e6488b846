"""Makes files of tokens of texts: `weir data build`, and weir.build_tokens in Python.

Inputs are read and written piece by piece, so memory does not grow with them. The same inputs, tokenizer and options
give the same bytes.
"""

import argparse
import array
import hashlib
import json
import os
import sys
import time

from weir.errors import Error

_PIECE_BYTES = 1 << 20  # of a text, cut at the end of a line
_LINE_BYTES_MAX = 64 << 20  # of JSONL: a whole document
_BATCH_PIECES = 256
_NPY_HEADER_BYTES = 128
_TYPES = {"u16": ("H", 1 << 16, "<u2"), "u32": ("I", 1 << 31, "<u4")}  # ids are below 2^31
_JSONL = (".jsonl", ".ndjson")
_SEPARATORS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "[SEP]")
_PROGRESS_SECONDS = 1.0
_REJECTED = 65  # exit code, as of the program


def _error(code, where, expected, found, hint):
    return Error(f"{code} at {where}: expected {expected}; found {found}. Try: {hint}")


class _Bytes:
    """Each byte is a token."""
    name = "bytes"
    num_ids = 256
    separator = 0  # NUL, which texts do not have

    def encode(self, pieces):
        return [piece if isinstance(piece, bytes) else piece.encode() for piece in pieces]

    def id_of(self, text):
        data = text.encode()
        return data[0] if len(data) == 1 else None


class _TokenizerJson:
    """A tokenizer.json of the library `tokenizers`."""

    def __init__(self, path):
        try:
            import tokenizers
        except ImportError:
            raise _error("W0798", path, "the Python library tokenizers, which reads tokenizer.json",
                         f"none in {sys.executable}", f"{sys.executable} -m pip install tokenizers") from None
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(path)
        except Exception as error:  # the library raises plain Exceptions
            raise _error("W0798", path, "a tokenizer.json of the library tokenizers", str(error),
                         "the tokenizer.json in the folder of the model") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.name = os.path.basename(path)
        self.num_ids = max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        known = [self._tokenizer.token_to_id(text) for text in _SEPARATORS]
        self.separator = next((number for number in known if number is not None), None)

    def encode(self, pieces):
        return [encoding.ids for encoding in self._tokenizer.encode_batch(pieces, add_special_tokens=False)]

    def id_of(self, text):
        return self._tokenizer.token_to_id(text)


class _SentencePiece:
    """A model of SentencePiece."""

    def __init__(self, path):
        try:
            import sentencepiece
        except ImportError:
            raise _error("W0798", path, "the Python library sentencepiece, which reads a .model",
                         f"none in {sys.executable}",
                         "apt install python3-sentencepiece, or pip install sentencepiece") from None
        self._model = sentencepiece.SentencePieceProcessor()
        try:
            self._model.Load(path)
        except (OSError, RuntimeError) as error:
            raise _error("W0798", path, "a model of SentencePiece", str(error),
                         "the tokenizer.model in the folder of the model") from None
        self.name = os.path.basename(path)
        self.num_ids = self._model.GetPieceSize()
        self.separator = self._model.eos_id() if self._model.eos_id() >= 0 else None

    def encode(self, pieces):
        return [self._model.EncodeAsIds(piece) for piece in pieces]

    def id_of(self, text):
        number = self._model.PieceToId(text)
        return None if number == self._model.unk_id() else number


def open_tokenizer(path):
    """Returns the tokenizer that a path names: "bytes", a tokenizer.json, a .model of SentencePiece, or a folder."""
    if path == "bytes":
        return _Bytes()
    if os.path.isdir(path):
        names = ("tokenizer.json", "tokenizer.model")
        found = [os.path.join(path, name) for name in names if os.path.isfile(os.path.join(path, name))]
        if not found:
            raise _error("W0798", path, "a folder with tokenizer.json or tokenizer.model", "neither",
                         "the path of the file, or bytes")
        path = found[0]
    if not os.path.isfile(path):
        raise _error("W0798", path, "a tokenizer.json, a .model of SentencePiece, or bytes", "no such file",
                     "--tokenizer bytes, which needs no file")
    if path.endswith(".json"):
        return _TokenizerJson(path)
    if path.endswith(".model"):
        return _SentencePiece(path)
    raise _error("W0798", path, "a tokenizer.json, a .model of SentencePiece, or bytes", "another file",
                 "the tokenizer.json of the model")


def _separator_id(tokenizer, given):
    """Returns the id that follows each document, or None."""
    if given == "none":
        return None
    if given is None:
        if tokenizer.separator is None:
            raise _error("W0798", tokenizer.name, f"a token that ends documents, such as {_SEPARATORS[0]}", "none",
                         "--separator TOKEN, or --separator none")
        return tokenizer.separator
    number = tokenizer.id_of(given)
    if number is None and given.isdigit() and int(given) < tokenizer.num_ids:
        number = int(given)
    if number is None:
        raise _error("W0798", f"--separator {given}", f"a token of {tokenizer.name}, an id below {tokenizer.num_ids}, "
                     "or none", f"\"{given}\"", "--separator none")
    return number


class _TokenFile:
    """A _TokenFile appears at its path as a whole, or not at all."""

    def __init__(self, path, kind):
        self.path, self.kind = path, kind
        self.num_tokens = self.num_documents = 0
        self._code, self._below, self._descr = _TYPES[kind]
        self._part = f"{path}.{os.getpid()}.part"
        try:
            self._file = open(self._part, "wb")
        except OSError as error:
            raise _error("W0799", path, "a folder that can be written", error.strerror, "another -o") from None
        if path.endswith(".npy"):
            self._file.write(bytes(_NPY_HEADER_BYTES))

    def write(self, ids):
        """Appends ids, each of which is an integer from 0 on."""
        tokens = array.array(self._code)
        try:
            tokens.extend(ids)
            fits = not tokens or max(tokens) < self._below
        except OverflowError:
            fits = False
        if not fits:
            raise _error("W0799", self.path, f"ids below {self._below}, for {self.kind}", "a larger id", "--type u32")
        if sys.byteorder == "big":
            tokens.byteswap()
        self._file.write(tokens.tobytes())
        self.num_tokens += len(tokens)

    def publish(self):
        if self.path.endswith(".npy"):
            text = f"{{'descr': '{self._descr}', 'fortran_order': False, 'shape': ({self.num_tokens},), }}"
            header = b"\x93NUMPY\x01\x00" + (_NPY_HEADER_BYTES - 10).to_bytes(2, "little")
            self._file.seek(0)
            self._file.write(header + text.encode().ljust(_NPY_HEADER_BYTES - 11) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._part, self.path)

    def discard(self):
        self._file.close()
        if os.path.exists(self._part):
            os.unlink(self._part)


def _decoded(path, begin, data, as_bytes):
    if as_bytes:
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _error("W0797", f"{path}, byte {begin + error.start}", "text in UTF-8", f"byte {data[error.start]:#04x}",
                     "iconv -t utf-8, gunzip if the file is compressed, or --tokenizer bytes") from None


def _text_pieces(path, file, end, as_bytes):
    """Yields the text from the place of the file to byte `end` in pieces that end with a line where they can."""
    place, rest = file.tell(), b""
    while True:
        data = file.read(min(_PIECE_BYTES, end - place - len(rest)))
        whole, at_end = rest + data, not data
        cut = len(whole) if at_end else whole.rfind(b"\n") + 1
        if not at_end and cut == 0 and len(whole) >= _PIECE_BYTES:
            cut = len(whole)
            while cut > len(whole) - 4 and whole[cut - 1] & 0xC0 == 0x80:  # within a character
                cut -= 1
            cut -= whole[cut - 1] >= 0xC0
        if cut:
            yield _decoded(path, place, whole[:cut], as_bytes)
        place, rest = place + cut, whole[cut:]
        if at_end:
            return


def _text_documents(path, held_out, as_bytes):
    """Yields (is held out, pieces, None): the beginning of a text, and its end if a share is held out."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        begin = size
        if held_out > 0:
            file.seek(int(size * (1 - held_out)))
            while True:
                part = file.readline(_PIECE_BYTES)
                if not part or part.endswith(b"\n"):
                    break
            begin = file.tell()
            file.seek(0)
        yield False, _text_pieces(path, file, begin, as_bytes)
        if begin < size:
            file.seek(begin)
            yield True, _text_pieces(path, file, size, as_bytes)


def _json_documents(path, field, is_held_out, as_bytes):
    """Yields (is held out, pieces) for each line of JSONL."""
    with open(path, "rb") as file:
        for number in range(1, sys.maxsize):
            begin = file.tell()
            line = file.readline(_LINE_BYTES_MAX + 1)
            if not line:
                return
            where = f"{path}, line {number}"
            if len(line) > _LINE_BYTES_MAX:
                raise _error("W0797", where, f"a line of at most {_LINE_BYTES_MAX} bytes", "a longer one",
                             "split the document")
            if not line.strip():
                continue
            try:
                document = json.loads(_decoded(path, begin, line, False))
            except (ValueError, RecursionError) as error:
                raise _error("W0797", where, "an object of JSON", str(error), "one object a line") from None
            if not isinstance(document, dict) or not isinstance(document.get(field), str):
                found = ", ".join(map(str, document)) if isinstance(document, dict) else type(document).__name__
                if isinstance(document, dict) and field in document:
                    found = f"\"{field}\" of type {type(document[field]).__name__}"
                raise _error("W0797", where, f"an object with a text \"{field}\"", found[:200] or "an empty object",
                             "--field NAME, the key of the text")
            text = document[field].encode("utf-8", "replace") if as_bytes else document[field]
            yield is_held_out(), iter([text])


class _Progress:
    """Progress says on a stream how far the work is, at most once a second; None: nothing."""

    def __init__(self, stream, total):
        self._stream, self._total, self._done, self._begin = stream, max(total, 1), 0, time.monotonic()
        self._next = self._begin + _PROGRESS_SECONDS

    def add(self, num_bytes, num_tokens):
        self._done += num_bytes
        now = time.monotonic()
        if self._stream is None or now < self._next:
            return
        self._next = now + _PROGRESS_SECONDS * (1 if self._stream.isatty() else 10)
        rate = self._done / (now - self._begin) / 1e6
        line = f"{100 * self._done / self._total:.0f} % of {self._total / 1e6:,.0f} MB, {num_tokens:,} tokens, " \
               f"{rate:.1f} MB/s"
        print(("\r" + line.ljust(60)) if self._stream.isatty() else line, end="" if self._stream.isatty() else "\n",
              file=self._stream, flush=True)

    def end(self):
        if self._stream is not None and self._stream.isatty():
            print("\r" + " " * 60 + "\r", end="", file=self._stream, flush=True)


class _Builder:

    def __init__(self, tokenizer, separator, files, progress):
        self._tokenizer, self._separator, self._files, self._progress = tokenizer, separator, files, progress
        self._batch = []  # (file, piece or None for the end of a document)

    def add(self, file, pieces):
        """Adds a document. A document without text counts as none."""
        has_text = False
        for piece in pieces:
            if not piece:
                continue
            has_text = True
            self._batch.append((file, piece))
            if len(self._batch) >= _BATCH_PIECES or len(piece) >= _PIECE_BYTES // 2:
                self.flush()
        if has_text:
            file.num_documents += 1
            self._batch.append((file, None))

    def flush(self):
        pieces = [piece for _, piece in self._batch if piece is not None]
        encoded = iter(self._tokenizer.encode(pieces))
        for file, piece in self._batch:
            if piece is not None:
                file.write(next(encoded))
            elif self._separator is not None:
                file.write([self._separator])
        self._batch.clear()
        self._progress.add(sum(len(piece) for piece in pieces), sum(file.num_tokens for file in self._files))


def _check(inputs, out, tokenizer, held_out):
    if not inputs:
        raise _error("W0797", "data build", "the path of at least one text or JSONL file", "none",
                     "weir data build a.txt -o a.npy")
    for path in inputs:
        if not os.path.isfile(path):
            raise _error("W0797", path, "a file of text, or of JSONL (.jsonl)",
                         "a folder" if os.path.isdir(path) else
                         "a device or a pipe" if os.path.exists(path) else "no such file", "check the path")
    if not out.endswith((".npy", ".bin")):
        raise _error("W0799", out, "a name that ends in .npy, or in .bin for numbers without a header", out,
                     "-o tokens.npy")
    if not 0 <= held_out < 1:
        raise _error("W0799", "--held-out", "a share from 0 to below 1", held_out, "--held-out 0.01")
    for output in (out, _held_out_path(out)):
        for path in [*inputs, tokenizer]:
            if os.path.exists(path) and os.path.exists(output) and os.path.samefile(path, output):
                raise _error("W0799", output, "a file that the command does not read", f"{path}, which would be lost",
                             "another -o")


def _held_out_path(out):
    stem, ending = os.path.splitext(out)
    return f"{stem}.held_out{ending}"


def build_tokens(inputs, out, *, tokenizer="bytes", held_out=0.0, field="text", separator=None, type=None, seed=0,
                 progress=None):
    """Writes the tokens of texts to a file and returns a dictionary that says what was written.

    inputs     paths: .jsonl has a document per line, and any other file is one document of text
    out        tokens.npy, or tokens.bin for numbers without a header
    tokenizer  "bytes", the path of a tokenizer.json or of a .model of SentencePiece, or of a folder with one of them
    held_out   the share of the documents of JSONL, drawn by the seed, and of the end of each text, that goes to
               tokens.held_out.npy
    field      the key of the text in a line of JSONL
    separator  the token that follows each document: its text, its id, or "none"; None: the tokenizer's own
    type       "u16" or "u32"; None: u16 if all ids fit
    progress   a stream such as sys.stderr, which gets a line a second; None: none
    """
    inputs = [os.fspath(path) for path in ([inputs] if isinstance(inputs, (str, os.PathLike)) else inputs)]
    out, tokenizer = os.fspath(out), os.fspath(tokenizer)
    _check(inputs, out, tokenizer, held_out)
    reader = open_tokenizer(tokenizer)
    separator_id = _separator_id(reader, None if separator is None else str(separator))
    kind = type or ("u16" if reader.num_ids <= _TYPES["u16"][1] else "u32")
    if kind not in _TYPES:
        raise _error("W0799", "--type", "u16 or u32", kind, "leave it out")
    drawn = 0

    def is_held_out():
        nonlocal drawn
        digest = hashlib.blake2b(f"{seed} {drawn}".encode(), digest_size=8).digest()
        drawn += 1
        return int.from_bytes(digest, "little") < held_out * 2**64

    files = []
    try:
        files.append(_TokenFile(out, kind))
        if held_out > 0:
            files.append(_TokenFile(_held_out_path(out), kind))
        shown = _Progress(progress, sum(os.path.getsize(path) for path in inputs))
        builder = _Builder(reader, separator_id, files, shown)
        as_bytes = isinstance(reader, _Bytes)
        for path in inputs:
            documents = (_json_documents(path, field, is_held_out, as_bytes) if path.lower().endswith(_JSONL) else
                         _text_documents(path, held_out, as_bytes))
            for held, pieces in documents:
                builder.add(files[1 if held else 0], pieces)
        builder.flush()
        shown.end()
        for file in files:
            if not file.num_tokens:
                raise _error("W0799", file.path, "at least one token", "none",
                             "more text, or a larger --held-out" if len(files) > 1 else "a file with text")
        for file in files:
            file.publish()
    except OSError as error:
        raise _error("W0799", error.filename or out, "to read the inputs and write the tokens", error.strerror,
                     "see whether the disk is full") from None
    finally:
        for file in files:
            file.discard()
    return {"files": [{"path": file.path, "tokens": file.num_tokens, "documents": file.num_documents}
                      for file in files], "type": kind, "ids": reader.num_ids, "separator": separator_id}


def data_text(built):
    """Returns the data block of a job for what build_tokens has returned."""
    fields = f"path: {json.dumps(built['files'][0]['path'])}"
    if built["files"][0]["path"].endswith(".bin"):
        fields += f" type: {built['type'].upper()}"
    if len(built["files"]) > 1:
        fields += f" held_out_path: {json.dumps(built['files'][1]['path'])}"
    return f"data {{ tokens {{ {fields} }} }}"


def main(arguments=None):
    """Does what `weir data build` asks for, and returns an exit code."""
    parser = argparse.ArgumentParser(prog="weir data build", description="Make files of tokens of texts.")
    parser.add_argument("inputs", nargs="+")
    parser.add_argument("-o", "--out", required=True)
    parser.add_argument("--tokenizer", default="bytes")
    parser.add_argument("--held-out", type=float, default=0.0)
    parser.add_argument("--field", default="text")
    parser.add_argument("--separator")
    parser.add_argument("--type")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    try:
        built = build_tokens(given.inputs, given.out, tokenizer=given.tokenizer, held_out=given.held_out,
                             field=given.field, separator=given.separator, type=given.type, seed=given.seed,
                             progress=sys.stderr)
    except Error as error:
        print(f"weir data build: {error}", file=sys.stderr)
        return _REJECTED
    except KeyboardInterrupt:
        print("weir data build: interrupted; no file was written", file=sys.stderr)
        return 130
    for file in built["files"]:
        documents = "1 document" if file["documents"] == 1 else f"{file['documents']:,} documents"
        print(f"{file['path']}: {file['tokens']:,} tokens ({built['type']}) of {documents}")
    ending = "no separator" if built["separator"] is None else f"{built['separator']} after each document"
    print(f"ids below {built['ids']:,}; {ending}")
    print(f"next: {data_text(built)}")
    return 0

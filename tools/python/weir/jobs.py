"""weir.job: joins a model with devices, rules, data and the settings of a training."""

import dataclasses
import operator
import pathlib

from weir.arrays import as_files, check_ignored, check_inputs
from weir.data_sources import KIND_NAMES, data_message
from weir.errors import Error
from weir.program import add_adapters, run
from weir.textproto import Enum, Message, quoted, to_text
from weir.weight_map import CONSTANTS_FILE

_SCOPES = ("ALL", "ACTIVATIONS", "PARAMETERS")


def _numbers(name, **fields):
    """Returns the message of an optimiser: {name: its fields}, with whole numbers and truth values as they are."""
    return Message([(name, Message((field, value if isinstance(value, (bool, int, Enum, Message)) else float(value))
                                   for field, value in fields.items()))])


@dataclasses.dataclass(frozen=True)
class AdamW:
    """AdamW as torch.optim.AdamW: the same arguments, the same defaults, the same updates."""
    lr: float = 1e-3
    betas: tuple = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 1e-2

    def message(self):
        return _numbers("adamw", beta1=float(self.betas[0]), beta2=float(self.betas[1]), epsilon=float(self.eps),
                        weight_decay=float(self.weight_decay))


@dataclasses.dataclass(frozen=True)
class Sgd:
    """Stochastic gradient descent as torch.optim.SGD."""
    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0

    def message(self):
        return _numbers("sgd", momentum=float(self.momentum), weight_decay=float(self.weight_decay))


@dataclasses.dataclass(frozen=True)
class Lion:
    """Lion: each element moves by the rate, in the direction of the sign of a mean of gradients."""
    lr: float = 1e-4
    betas: tuple = (0.9, 0.99)
    weight_decay: float = 0.0

    def message(self):
        return _numbers("lion", beta1=float(self.betas[0]), beta2=float(self.betas[1]),
                        weight_decay=float(self.weight_decay))


@dataclasses.dataclass(frozen=True)
class Lamb:
    """LAMB: AdamW, in which the norm of each weight scales its step."""
    lr: float = 1e-3
    betas: tuple = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.0

    def message(self):
        return _numbers("lamb", beta1=float(self.betas[0]), beta2=float(self.betas[1]), epsilon=float(self.eps),
                        weight_decay=float(self.weight_decay))


@dataclasses.dataclass(frozen=True)
class Adafactor:
    """Adafactor as torch.optim.Adafactor: the same arguments, the same defaults, the same updates."""
    lr: float = 1e-2
    beta2_decay: float = -0.8
    eps: tuple = (None, 1e-3)
    d: float = 1.0
    weight_decay: float = 0.0

    def message(self):
        fields = {} if self.eps[0] is None else {"epsilon1": float(self.eps[0])}
        return _numbers("adafactor", beta2_decay=float(self.beta2_decay), **fields, epsilon2=float(self.eps[1]),
                        clip_threshold=float(self.d), weight_decay=float(self.weight_decay))


@dataclasses.dataclass(frozen=True)
class Muon:
    """Muon for matrices, in f32; parameters of other ranks take the settings of `adamw`, with the rate of Muon.

    With `flatten`, parameters of more than two dimensions are matrices of their first dimension by all others.

    A group gives embeddings and the last layer another optimiser.
    """
    lr: float = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    eps: float = 1e-7
    ns_steps: int = 5
    adjust_lr_fn: str = "original"  # or "match_rms_adamw"
    adamw: AdamW = AdamW()
    flatten: bool = False

    def message(self):
        kinds = {None: "SHAPE", "original": "SHAPE", "match_rms_adamw": "RMS"}
        if self.adjust_lr_fn not in kinds:
            raise Error(f"adjust_lr_fn: expected \"original\" or \"match_rms_adamw\"; found {self.adjust_lr_fn!r}")
        (_, adamw), = self.adamw.message()
        return _numbers("muon", momentum=float(self.momentum), plain=not self.nesterov, epsilon=float(self.eps),
                        iterations=int(self.ns_steps), weight_decay=float(self.weight_decay),
                        adjust=Enum(kinds[self.adjust_lr_fn]), adamw=adamw, flatten=bool(self.flatten))


OPTIMIZERS = (AdamW, Sgd, Lion, Lamb, Adafactor, Muon)


@dataclasses.dataclass(frozen=True)
class Group:
    """A Group says how training treats the weights whose names fit a pattern, such as "*.bias" or ["wte", "head*"].

    `lr` is a factor of the learning rate of the job. The learning rate of `optimizer` does not count.
    """
    pattern: object
    lr: float = None
    weight_decay: float = None
    frozen: bool = False
    optimizer: object = None

    def message(self):
        patterns = [self.pattern] if isinstance(self.pattern, str) else list(self.pattern)
        message = Message(("pattern", pattern) for pattern in patterns)
        if self.lr is not None:
            message.add("learning_rate", float(self.lr))
        if self.weight_decay is not None:
            message.add("weight_decay", float(self.weight_decay))
        if self.frozen:
            message.add("frozen", True)
        if self.optimizer is not None:
            message.add("optimizer", _checked(self.optimizer).message())
        return message


@dataclasses.dataclass(frozen=True)
class PrecisionRule:
    """A PrecisionRule gives operations another precision than that of the job: weir.PrecisionRule("f32", op="*norm*").

    `pattern` is for names of functions, of calls and of nodes (FUNCTION/NODE), and `op` for operations; each is a text or
    a list of texts. An operation that fits both takes the rule, unless it fits an earlier one.
    """
    precision: str
    pattern: object = ()
    op: object = ()

    def message(self):
        message = Message()
        for field in ("pattern", "op"):
            patterns = getattr(self, field)
            for pattern in [patterns] if isinstance(patterns, str) else patterns:
                message.add(field, pattern)
        message.add("precision", _precision(self.precision))
        return message


def _precision(name):
    if name not in ("f32", "bf16", "f16"):
        raise Error(f"precision: expected \"f32\", \"bf16\" or \"f16\"; found {name!r}")
    return Enum(name.upper())


def _loss_scale(value):
    """Returns the message of a factor that stays, or of the fields of one that adapts."""
    if not isinstance(value, dict):
        return Message([("fixed", float(value))])
    kinds = {"initial": float, "growth": float, "backoff": float, "growth_interval": int}
    unknown = [field for field in value if field not in kinds]
    if unknown:
        raise Error(f"loss_scale: expected a number, or {', '.join(kinds)}; found {unknown[0]!r}")
    return Message((field, kinds[field](number)) for field, number in value.items())


def _checked(optimizer):
    """Returns the optimiser, or raises Error if it is none of Weir's."""
    if isinstance(optimizer, OPTIMIZERS):
        return optimizer
    kind = optimizer if isinstance(optimizer, type) else type(optimizer)
    names = [f"weir.{known.__name__}" for known in OPTIMIZERS]
    raise Error(f"optimizer: expected {', '.join(names[:-1])} or {names[-1]}; found {kind.__module__}.{kind.__name__}. "
                "Try: weir.AdamW(lr=3e-4)")


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A Schedule is linear warm-up, then a rate that is "constant", or goes by "cosine" or "linear" to `min_lr`."""
    warmup_steps: int = 0
    decay: str = "constant"
    decay_steps: int = 0  # 0: the steps of the job
    min_lr: float = 0.0


@dataclasses.dataclass(frozen=True)
class Adapters:
    """Adapters (LoRA) train in place of the weights: two matrices of a low rank beside each weight.

    They count alpha / rank times; alpha is the rank if it is not given. `on` has patterns of the weights that get
    adapters, such as "*.q_proj.weight", or nothing for every matrix that only products read. `train` has patterns of
    other weights that train as well.
    """
    rank: int = 8
    alpha: float = None
    on: object = ()
    train: object = ()

    def add_to(self, text):
        """Returns the text of a job with these adapters."""
        patterns = [[part] if isinstance(part, str) else list(part) for part in (self.on, self.train)]
        alpha = None if self.alpha is None else float(self.alpha)
        return add_adapters(text, _positive("rank of adapters", self.rank), alpha, *patterns)


class Job:
    """A Job is the text of a job file, the weights with which the job begins, and the arrays that are its data.

    The text names the files of arrays relative to the folder of the job; a written job names their whole paths.
    """

    def __init__(self, graph, text, arrays=()):
        self.graph = graph
        self.text = text
        self.arrays = list(arrays)
        self.folder = None  # of the last `write`

    def write(self, folder):
        """Writes job.textproto, its weights, arrays and the map of public weights into a folder, which may be new."""
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write_files(self.folder)

    def write_files(self, folder):
        """Writes all files into a folder that exists, and does not remember the folder."""
        text = self.text
        for source in self.arrays:
            source.write(folder)
            text = text.replace(f"path: {quoted(source.path)}", f"path: {quoted(str(folder.resolve() / source.path))}")
        (folder / "job.textproto").write_text(text, encoding="utf-8")
        (folder / "job.weights.textproto").write_text(self.graph.weight_map(), encoding="utf-8")
        self.graph.write_weights(folder / CONSTANTS_FILE)

    def merge(self, weights="trained.safetensors", merged="merged.safetensors"):
        """Writes the weights of a run with adapters as weights without, and returns the path for `state_dict`.

        Both files are in the folder of `write`, or have whole paths.
        """
        if self.folder is None:
            raise Error("merge: expected a job that has been written; found none. Try: job.write(\"folder\")")
        run(["lora", "merge", self.folder / "job.textproto", "--weights", self.folder / weights, "-o",
             self.folder / merged])
        return self.folder / merged


def mesh_message(mesh):
    """Returns the message of a mesh such as "dp=2,tp=2"; "" and None are one device."""
    mesh = "" if mesh is None else mesh
    if not isinstance(mesh, str):
        raise Error(f"mesh: expected axes such as \"dp=2,tp=2\"; found {mesh!r}")
    message = Message()
    for item in filter(None, (part.strip() for part in mesh.split(","))):
        name, _, size = item.partition("=")
        if not name or not size.isdigit() or int(size) < 1:
            raise Error(f"mesh: expected axes such as \"dp=2,tp=2\"; found \"{mesh}\"")
        message.add("axis", Message([("name", name.strip()), ("size", int(size))]))
    return message


def rule_messages(rules):
    """Returns a message per rule of {dimension: axis} or {dimension: (axis, scope)}; earlier rules win."""
    messages = []
    if not isinstance(rules, dict):
        raise Error(f"rules: expected {{dimension: axis}} or \"auto\"; found {rules!r}")
    for dim, axis in rules.items():
        scope = None
        if not isinstance(axis, str):
            if not isinstance(axis, (tuple, list)) or len(axis) != 2 or not all(isinstance(part, str) for part in axis):
                raise Error(f"rule for {dim}: expected the name of an axis, such as \"dp\", or an axis and a scope, "
                            f"(\"dp\", \"activations\"); found {axis!r}")
            axis, scope = axis
            if scope.upper() not in _SCOPES:
                raise Error(f"rule for {dim}: expected a scope out of {', '.join(_SCOPES)}; found \"{scope}\"")
        message = Message([("dim", dim), ("axis", axis)])
        if scope is not None and scope.upper() != "ALL":
            message.add("scope", Enum(scope.upper()))
        messages.append(message)
    return messages


def _positive(name, value):
    """Returns a whole number of Python or NumPy that is at least 1."""
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise Error(f"{name}: expected a whole number that is at least 1; found {value!r}")
    return number


def job(graph, *, steps, mesh="", rules=None, data=None, optimizer=None, schedule=None, clip_norm=0.0, micro_batches=1,
        zero_stage=0, precision="f32", seed=0, cut=(), pipeline_schedule=None, name=None, groups=(), average=None,
        adapters=None, precision_of=(), evaluate_average=False, loss_scale=None):
    """Returns a Job.

    graph              what weir.from_torch returned
    mesh, rules        the devices, "dp=2,tp=2", one device without; and {dimension: axis} or
                       {dimension: (axis, "activations")};
                       rules="auto": a search finds them when the job is planned or trained
    data               {input: array}, with arrays of NumPy, tensors of PyTorch or paths of .npy files whose rows are
                       samples, and perhaps "held_out": 0.1 and "scale": {input: 1 / 255}; the path of a text;
                       "synthetic"; or {kind: {field: value}} as in `data` of a job file, such as
                       {"tokens": {"path": "tokens.bin", "type": "u16"}, "feed": {"idx": "tokens"}}
    optimizer          weir.AdamW, Sgd, Lion, Lamb, Adafactor or Muon, with the learning rate
    groups             weir.Group for each set of weights with a rate, decay or optimiser of its own; the first that
                       fits counts
    precision          "f32", "bf16" or "f16"
    precision_of       weir.PrecisionRule for each set of operations in another precision; the first that fits counts
    loss_scale         with "f16": a number, which stays, or the fields of a factor that adapts, {"initial": 1024.0};
                       None: one that adapts
    average            the decay of averages of the weights, such as 0.999; None: no averages
    evaluate_average   evaluations during the training compute with the averages
    adapters           weir.Adapters that train in place of the weights; None: the weights train
    schedule           weir.Schedule; None: the learning rate stays
    cut                names of calls that begin the parts of a pipeline; none: the parts are balanced
    pipeline_schedule  "gpipe", "interleaved", "zero_bubble" or None for 1F1B
    """
    steps = _positive("steps", steps)
    cut = [cut] if isinstance(cut, str) else cut
    optimizer = AdamW() if optimizer is None else optimizer
    _checked(optimizer)
    schedule = schedule or Schedule()
    message = Message([("name", name or graph.model)])
    tail = Message([("mesh", mesh_message(mesh))])
    if isinstance(rules, str):
        if rules != "auto":
            raise Error(f"rules: expected {{dimension: axis}} or \"auto\"; found \"{rules}\"")
        tail.add("rules", Enum("AUTO"))
        rules = None
    for rule in rule_messages(rules or {}):
        tail.add("rule", rule)
    if cut or pipeline_schedule:
        pipeline = tail.add("pipeline", Message(("cut", call) for call in cut))
        if pipeline_schedule:
            pipeline.add("schedule", Enum(pipeline_schedule.upper()))
    data, arrays = as_files(data, KIND_NAMES)
    check_inputs(data, graph.text)
    check_ignored(arrays, graph.text)
    tail.add("data", data_message(data))
    training = tail.add("training", Message([("steps", steps)]))
    if micro_batches != 1:
        training.add("micro_batches", int(micro_batches))
    if zero_stage:
        training.add("zero_stage", int(zero_stage))
    of_optimizer = training.add("optimizer", optimizer.message())
    if clip_norm:
        of_optimizer.add("clip_norm", float(clip_norm))
    rate = training.add("schedule", Message([("learning_rate", float(optimizer.lr))]))
    if schedule.warmup_steps:
        rate.add("warmup_steps", int(schedule.warmup_steps))
    if schedule.decay != "constant":
        rate.add("decay", Enum(schedule.decay.upper()))
        if schedule.decay_steps:
            rate.add("decay_steps", int(schedule.decay_steps))
        if schedule.min_lr:
            rate.add("min_learning_rate", float(schedule.min_lr))
    for group in groups:
        training.add("group", group.message())
    if average is not None:
        of_average = training.add("average", Message([("decay", float(average))]))
        if evaluate_average:
            of_average.add("evaluate", True)
    elif evaluate_average:
        raise Error("evaluate_average: expected the decay of averages beside it; found none. Try: average=0.999")
    if precision != "f32":
        training.add("precision", _precision(precision))
    if loss_scale is not None:
        training.add("loss_scale", _loss_scale(loss_scale))
    for rule in precision_of:
        training.add("precision_of", rule.message())
    if seed:
        training.add("seed", int(seed))
    body = "".join(f"  {line}\n" if line else "\n" for line in graph.text.splitlines())
    text = ("# proto-file: proto/job.proto\n# proto-message: weir.proto.Job\n\n" + to_text(message)
            + f"\ngraph {{\n{body}}}\n\n" + to_text(tail))
    return Job(graph, text if adapters is None else adapters.add_to(text), arrays)

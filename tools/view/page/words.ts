// This list says what the page's words mean. A word in a text shows its meaning when the pointer or the focus is on it.

export const WORDS: { [word: string]: string } = {
  act: "One turn of an actor: it takes a token from each input, a slot of each output, and computes.",
  actor: "The part of a plan that does one piece of work on one rank, again and again.",
  "back-pressure": "Actors that wait for free slots because the readers of their registers are slower than they are.",
  arena: "The memory that a rank takes at its start. The plan gives every tensor a place in it; kernels may take more beside it.",
  "between acts":
    "The device was ready for the next act and had not begun it, or the trace knows no event that it waited for.",
  "between ranks": "A token or a slot that one rank has sent and that has not arrived at the other.",
  blocked: "The actor has its input, and waits until a reader gives up a slot of its output.",
  boxing: "The transfers that bring a tensor from one layout to another, such as an all-reduce.",
  "busiest link": "Of all pairs of ranks, the one over which this boxing sends most in a step.",
  bubble:
    "The share of the time from the first forward act of a step to its last backward act in which devices do no act of " +
    "a pass: the pipeline fills or drains, or a stage waits for something else.",
  "bubble in a step":
    "Between the first forward act of a step and its last backward act, a device waited for a token that another stage " +
    "had not sent yet. The bubble in the view Pipeline also has communication, waits within a stage and waits for slots.",
  credit: "The permission to write a slot of a register again, given back by its last reader.",
  "critical path":
    "The chain of acts and waits that leads from the end of a step back to its begin. Only what lies on it can make " +
    "the step shorter.",
  device: "What runs the acts of a rank: a CPU with its threads, or a GPU.",
  "late ranks":
    "The sender of an awaited token had not sent it yet: a rank of the same stage that is slower, or a stage that " +
    "updates its weights. Waits for another stage during the passes of a step are its bubble.",
  exposed: "Time in which a device had nothing else to do and waited for a message that was on its way: communication that no work hid.",
  fit: "Whether each device, or this machine with all of them, has the memory that the plan needs.",
  function: "A part of the model that the plan calls one or more times, such as a layer, or the gradient of such a part.",
  "in acts": "The share of the last steps in which acts ran. In the rest the rank waited for others, or had nothing to do.",
  "had a core":
    "The share of the time in long acts in which the thread of the device had a core. Far below 100 %, other programs or " +
    "other ranks use the cores. A device with short acts alone has no such figure.",
  layout: "How a tensor lies over the devices: split (S), broadcast (B) or partial (P), for each axis of the mesh.",
  MFU:
    "Model flops utilisation: the arithmetic of the model's step, three times that of its forward pass, over what the " +
    "devices could do in that time.",
  "micro-batch": "A part of the batch of a step that goes through the model by itself.",
  "packing and combining":
    "Acts of boxings: they pack tensors for other ranks, and combine what has come from them, such as the sum of an all-reduce.",
  phase: "What an act serves: forward, backward, the gradients of weights, update, boxing, data or metrics.",
  queue: "Acts on one queue of a device run one after another.",
  predicted: "By a simulation of the plan in virtual time, with the costs that are named. Nothing has run.",
  rank: "One device of the job, counted from 0.",
  "rank class":
    "Ranks of a stage that do the same at the same time. A simulation by symmetry has one of them, which stands for all: what it " +
    "sends to another rank of the class arrives as what that rank sends back.",
  ready: "The actor has all that an act needs, and its device does other acts first.",
  register: "The slots in which an actor leaves its result for the actors that read it.",
  replay:
    "The recorded run played again under the rules of the runtime, with one change. A replay without a change shows " +
    "how far the figures can be trusted.",
  rule:
    "Why a tensor lies so. A rule is a line of the job that says which dimension is split over which axis of the mesh; what no rule " +
    "is about follows its operands.",
  starved: "The actor waits for a token of its input.",
  scratch: "Memory that an act uses while it runs, and that holds nothing between acts.",
  slot: "Room for one token in a register. An actor waits if all slots of its output are in use.",
  stage: "The part of the model that one place of a pipeline computes.",
  step: "One update of the weights: from the end of the step before to the end of its own last act.",
  token: "A tensor in a slot of a register, ready to be read.",
  "under way": "The awaited token had been sent and had not arrived: communication that no work hid.",
};

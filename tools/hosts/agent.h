// The agent of a host: it starts, watches and ends the job's processes on its host as the starter
// orders over a channel, and reports what they print and how they end (proto/agent.proto). The
// agent ends when the channel closes, and its processes end with it. It knows nothing of training.
//
// `weir agent` is an agent on its standard input and output; a launcher starts it. Whoever writes
// to the channel commands the account of the agent, so the channel must belong to the starter
// alone: the pipes of ssh, or a connection that both sides have proved.
// Thread rule: one thread, which lives as long as the processes.
#pragma once

#include "tools/launch/owned_descriptor.h"

namespace weir::hosts {

// Serves until the channel closes. Returns the exit code: 0 after a close, 70 if the bytes on the
// channel are no orders.
int RunAgent(launch::OwnedDescriptor input, launch::OwnedDescriptor output);

// Runs an agent on descriptors 0 and 1. Whatever else the process prints goes to descriptor 2.
int RunAgentOnStandardStreams();

}  // namespace weir::hosts

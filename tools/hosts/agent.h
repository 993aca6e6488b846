// The agent of a host: it starts, watches and ends the job's processes on its host as the starter
// orders over a channel, and reports what they print and how they end (proto/agent.proto). The
// agent ends when the channel closes, and its processes end with it. It knows nothing of training.
//
// `weir agent` is an agent on its standard input and output; a launcher starts it. Whoever writes
// to the channel commands the account of the agent, so the channel must belong to the starter
// alone: the pipes of ssh, or a connection that both sides have proved.
// Thread rule: one thread, which lives as long as the processes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/ids.h"
#include "tools/hosts/byte_stream.h"
#include "tools/hosts/meeting.h"

namespace weir::hosts {

// kTold: the agent tells the starter of a signal that asks to end, because the scheduler need not
// have sent the signal to the starter, too.
enum class AgentSignals : uint8_t { kIgnored, kTold };

// The exit code of an agent at the end of the job. kOfJob: the job's, for a task that its scheduler
// judges by itself. kDone: 0, because the scheduler makes one code of those of all tasks, and the
// starter's is the one that counts.
enum class AgentCode : uint8_t { kDone, kOfJob };

struct AgentOptions {
  AgentSignals signals = AgentSignals::kIgnored;
  AgentCode code = AgentCode::kDone;
};

// Serves until the stream ends. `starter_address` is the starter's address as this host sees it;
// empty: not known. Returns the exit code, as AgentCode says, if the starter has told that the job
// is over. If the stream ends without that: 69, or that of an interrupted job (130, or 0 for kDone)
// if a signal has asked this process to end, too. 70 if the bytes are no orders.
int RunAgent(std::shared_ptr<ByteStream> stream, const std::string& starter_address,
             const AgentOptions& options);

// Runs an agent on descriptors 0 and 1. Whatever else the process prints goes to descriptor 2.
int RunAgentOnStandardStreams();

// Comes to the starter's meeting as task `task`, and runs an agent there. From then on SIGINT,
// SIGTERM and SIGHUP do not end the process: the scheduler sends them to all of its tasks, and the
// starter decides how the job ends. Returns the exit code: RunAgent's, or 69 if the starter is not
// reached within the limit, which the agent says on standard error. `name`: of this host, as the
// job calls it.
int RunAgentOfTask(const InvitationSource& source, TaskId task, const std::string& name,
                   const AgentOptions& options, int64_t limit_ms);

// The same with the invitation on standard input and the number of the task in a variable of the
// environment. Slurm's name of the node is the name. Such an agent tells the starter of signals,
// because the starter is no task of the same step. Returns 2 if the variable holds no number.
int RunInvitedAgent(const std::string& task_variable);

}  // namespace weir::hosts

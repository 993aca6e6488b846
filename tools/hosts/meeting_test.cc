#include "tools/hosts/meeting.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/hosts/frame_channel.h"
#include "tools/hosts/host_name.h"

namespace weir::hosts {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

absl::Status Nothing() { return absl::OkStatus(); }

std::unique_ptr<Meeting> OpenMeeting() { return *Meeting::Open({"127.0.0.1"}, 0, *MakeSecret()); }

// Joins in a thread, as the agent of a host does.
class Agent {
 public:
  Agent(const Invitation& invitation, int task, int64_t limit_ms = 10'000)
      : thread_([this, invitation, task, limit_ms] {
          joined_ =
              Join([&] { return invitation; }, TaskId(task), absl::StrCat("host", task), limit_ms);
        }) {}
  ~Agent() {
    if (thread_.joinable()) thread_.join();
  }
  const absl::StatusOr<Joined>& joined() {
    if (thread_.joinable()) thread_.join();
    return joined_;
  }

 private:
  absl::StatusOr<Joined> joined_ = absl::UnknownError("not yet");
  std::thread thread_;
};

int ConnectTo(const std::string& text) {
  const control::SocketAddress address = *control::SocketAddress::ParseWithPort(text);
  const int socket = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::connect(socket, address.any(), address.size()), 0);
  return socket;
}

std::string ReceiveFrame(FrameChannel* channel) {
  std::vector<std::string> frames;
  while (frames.empty()) {
    pollfd ready = {channel->input(), POLLIN, 0};
    ::poll(&ready, 1, 10'000);
    const absl::Status status = channel->Receive(&frames);
    if (!status.ok()) return std::string(status.message());
  }
  return frames.front();
}

TEST(MeetingTest, AnInvitationComesBackFromItsText) {
  const Invitation invitation = {*MakeSecret(),
                                 {"10.0.0.1:4000", "[fe80::1]:5", "gpt-0.gpt:29417"}};
  const Invitation parsed = *ParseInvitation(InvitationText(invitation));
  EXPECT_EQ(parsed.secret, invitation.secret);
  EXPECT_EQ(parsed.addresses, invitation.addresses);
}

TEST(MeetingTest, TextThatIsNoInvitationIsRefusedWithoutBeingRepeated) {
  const std::string good = InvitationText({*MakeSecret(), {"a:1"}});
  const std::string secret = good.substr(15, 64);
  for (const std::string& text :
       {std::string(), std::string("weir-meeting 1"), "weir-meeting 2" + good.substr(14),
        good.substr(0, good.size() - 5), good.substr(0, 30) + " a:1", "x" + good,
        good + std::string(kInvitationBytesMax, ' ')}) {
    const absl::Status status = ParseInvitation(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(secret)));
  }
}

TEST(MeetingTest, AgentsComeInAnyOrderAndAreReturnedInTheirs) {
  std::unique_ptr<Meeting> meeting = OpenMeeting();
  Agent second(meeting->invitation(), 2), first(meeting->invitation(), 1);
  std::vector<Visitor> visitors = *meeting->Await({TaskId(1), TaskId(2)}, 10'000, Nothing);
  ASSERT_EQ(visitors.size(), 2u);
  EXPECT_EQ(visitors[0].task, TaskId(1));
  EXPECT_EQ(visitors[0].name, "host1");
  EXPECT_EQ(visitors[1].name, "host2");
  EXPECT_EQ(visitors[0].machine, MachineId());
  ASSERT_TRUE(first.joined().ok()) << first.joined().status();
  EXPECT_EQ(first.joined()->starter_address, "127.0.0.1");
}

TEST(MeetingTest, FramesOfAnySizeTravelBothWays) {
  std::unique_ptr<Meeting> meeting = OpenMeeting();
  Agent agent(meeting->invitation(), 0);
  std::vector<Visitor> visitors = *meeting->Await({TaskId(0)}, 10'000, Nothing);
  FrameChannel starter(visitors[0].stream, FrameChannel::Side::kStarter);
  FrameChannel other(agent.joined()->stream, FrameChannel::Side::kAgent);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{16'384}, size_t{16'385}, kFrameBytesMax}) {
    const std::string frame(size, static_cast<char>('a' + size % 7));
    std::thread sender([&] {
      other.Send(frame);
      while (other.num_waiting() > 0) {
        pollfd ready = {other.output(), POLLOUT, 0};
        ::poll(&ready, 1, 10'000);
        other.Flush();
      }
    });
    EXPECT_TRUE(ReceiveFrame(&starter) == frame) << size;
    sender.join();
  }
  starter.Send("and back");
  EXPECT_EQ(ReceiveFrame(&other), "and back");
  EXPECT_FALSE(other.is_silent());
  starter.CloseOutput();
  EXPECT_EQ(ReceiveFrame(&other), "the other side closed it");
}

TEST(MeetingTest, WhoeverDoesNotKnowTheSecretIsTurnedAway) {
  std::unique_ptr<Meeting> meeting = OpenMeeting();
  Invitation forged = meeting->invitation();
  forged.secret = *MakeSecret();
  Agent stranger(forged, 0, /*limit_ms=*/0);
  const absl::Status status = meeting->Await({TaskId(0)}, 1'000, Nothing).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("turned away: the other side does not know the job's secret"));
  EXPECT_THAT(std::string(stranger.joined().status().message()),
              HasSubstr("the other side does not know the job's secret"));
}

TEST(MeetingTest, SilentAndTalkativeStrangersKeepNobodyOut) {
  std::unique_ptr<Meeting> meeting = OpenMeeting();
  std::vector<int> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(ConnectTo(meeting->invitation().addresses[0]));
    if (i % 2 == 0) {
      EXPECT_EQ(::write(strangers.back(), "GET / HTTP/1.1\r\n\r\n", 18), 18);
    }
  }
  Agent agent(meeting->invitation(), 0);
  EXPECT_TRUE(meeting->Await({TaskId(0)}, 10'000, Nothing).ok());
  for (const int stranger : strangers) ::close(stranger);
}

TEST(MeetingTest, MissingTasksAreNamed) {
  std::unique_ptr<Meeting> meeting = OpenMeeting();
  Agent one(meeting->invitation(), 1), twice(meeting->invitation(), 1);
  const absl::Status status =
      meeting->Await({TaskId(1), TaskId(2), TaskId(3)}, 1'000, Nothing).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no word of tasks 2, 3 within 1 s at 127.0.0.1:"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("task '1 host1', which is here already"));
}

TEST(MeetingTest, TheWaitEndsWithAnErrorOfTheCaller) {
  std::unique_ptr<Meeting> meeting = OpenMeeting();
  EXPECT_EQ(meeting->Await({TaskId(0)}, 10'000, [] { return absl::UnavailableError("srun ended"); })
                .status()
                .message(),
            "srun ended");
}

TEST(MeetingTest, AnAddressThatIsNotReachedIsNamed) {
  Invitation invitation = OpenMeeting()->invitation();  // nobody listens there any more
  invitation.addresses.push_back("no-such-host.invalid:7");
  const absl::Status status =
      Join([&] { return invitation; }, TaskId(0), "h", /*limit_ms=*/0).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Connection refused"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no-such-host.invalid:7 is not known"));
}

TEST(MeetingTest, AnInvitationOfAnEarlierJobIsDroppedWhenTheStarterReplacesIt) {
  const Invitation stale = OpenMeeting()->invitation();  // nobody listens there any more
  std::unique_ptr<Meeting> meeting = OpenMeeting();
  int num_asked = 0;
  std::thread agent([&] {
    const auto latest = [&] { return ++num_asked < 5 ? stale : meeting->invitation(); };
    EXPECT_TRUE(Join(latest, TaskId(1), "h", /*limit_ms=*/10'000).ok());
  });
  EXPECT_TRUE(meeting->Await({TaskId(1)}, 10'000, Nothing).ok());
  agent.join();
  EXPECT_GE(num_asked, 5);
}

TEST(MeetingTest, APortThatSomebodyHasAtOneOfTheAddressesIsRefused) {
  const std::string secret = *MakeSecret();
  const absl::StatusOr<std::unique_ptr<Meeting>> first =
      Meeting::Open({"127.0.0.1", "127.0.0.1"}, 0, secret);
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string& address = (*first)->invitation().addresses[0];
  const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  const absl::Status taken = Meeting::Open({"127.0.0.2", "127.0.0.1"}, port, secret).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(taken.message()), HasSubstr(address + ": Address already in use"));
}

TEST(MeetingTest, AnAddressOfAnotherMachineIsNoPlaceToMeet) {
  const absl::Status status = Meeting::Open({"203.0.113.7"}, 0, *MakeSecret()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("203.0.113.7: "));
}

}  // namespace
}  // namespace weir::hosts

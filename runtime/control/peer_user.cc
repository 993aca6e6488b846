#include "runtime/control/peer_user.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace weir::control {
namespace {

constexpr int kReplySeconds = 1;  // the kernel answers at once

struct Ends {
  sockaddr_storage here = {}, there = {};
};

bool ReadEnds(int descriptor, Ends* ends) {
  socklen_t size = sizeof(ends->here);
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&ends->here), &size) != 0) return false;
  size = sizeof(ends->there);
  return ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&ends->there), &size) == 0 &&
         ends->here.ss_family == ends->there.ss_family &&
         (ends->here.ss_family == AF_INET || ends->here.ss_family == AF_INET6);
}

// Returns the port; writes the address to `address`, which has room for 16 bytes.
uint16_t Split(const sockaddr_storage& end, uint32_t* address) {
  if (end.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(end);
    std::memcpy(address, &v4.sin_addr, sizeof(v4.sin_addr));
    return v4.sin_port;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(end);
  std::memcpy(address, &v6.sin6_addr, sizeof(v6.sin6_addr));
  return v6.sin6_port;
}

struct Question {
  nlmsghdr header = {};
  inet_diag_req_v2 about = {};
};

Question AskAbout(const Ends& ends) {
  Question question;
  question.header.nlmsg_len = sizeof(question);
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.about.sdiag_family = static_cast<uint8_t>(ends.here.ss_family);
  question.about.sdiag_protocol = IPPROTO_TCP;
  question.about.idiag_states = ~0u;
  // The peer's socket is the socket whose own end comes first.
  question.about.id.idiag_sport = Split(ends.there, question.about.id.idiag_src);
  question.about.id.idiag_dport = Split(ends.here, question.about.id.idiag_dst);
  question.about.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
  question.about.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return question;
}

}  // namespace

std::optional<uid_t> UserOfPeer(int descriptor) {
  Ends ends;
  if (!ReadEnds(descriptor, &ends)) return std::nullopt;
  const int kernel = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (kernel < 0) return std::nullopt;
  const timeval limit = {kReplySeconds, 0};
  ::setsockopt(kernel, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  const Question question = AskAbout(ends);
  std::optional<uid_t> user;
  alignas(nlmsghdr) char reply[4096];
  if (::send(kernel, &question, sizeof(question), 0) == static_cast<ssize_t>(sizeof(question))) {
    const ssize_t size = ::recv(kernel, reply, sizeof(reply), 0);
    const auto* header = reinterpret_cast<const nlmsghdr*>(reply);
    if (size >= static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg))) &&
        header->nlmsg_type == SOCK_DIAG_BY_FAMILY) {
      inet_diag_msg found;
      std::memcpy(&found, NLMSG_DATA(header), sizeof(found));
      // A socket that its process has closed belongs to no user: its inode is gone.
      if (found.idiag_inode != 0) user = found.idiag_uid;
    }
  }
  ::close(kernel);
  return user;
}

}  // namespace weir::control

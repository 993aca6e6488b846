// Tells whether the machine at the other end of a connection of this process still acknowledges
// what this process sends. The kernel of a machine acknowledges even while the program there is
// stopped, and does not when the machine or the way to it is gone. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weir::control {

// Makes the system ask for acknowledgements while the connection is idle, at least every second.
// Returns the age of the latest acknowledgement; nullopt if the descriptor is no TCP connection.
std::optional<int64_t> SinceAcknowledgedMs(int descriptor);

// Looks at the connections of this process to `address` ("10.0.0.7:4000") in the same way. Returns
// the age of the latest acknowledgement; nullopt if there is no such connection.
std::optional<int64_t> SinceAcknowledgedMs(const std::string& address);

}  // namespace weir::control

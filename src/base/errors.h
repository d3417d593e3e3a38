#pragma once

#include <stdexcept>
#include <string>

namespace ssmbench {

/// The caller asked for something that cannot be: usage, config or input file. One line. Exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A tensor does not have the shape, dtype or layout that the operation's contract asks for.
struct ContractError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The device is missing or failed (CUDA errors carry file and line). Exit code 4.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Host or device memory ran out. Exit code 4.
struct OutOfMemory : DeviceError {
  using DeviceError::DeviceError;
};

/// Results could not be written (disk full, file vanished). Exit code 4.
struct OutputError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The user pressed Ctrl-C; what was finished is on disk. Exit code 130.
struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

}  // namespace ssmbench

#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/arithmetic.h"
#include "model/launch.h"
#include "model/problem.h"
#include "model/tensor.h"

namespace ssmbench {

enum class DeviceKind { cpu, cuda };
std::string_view name_of(DeviceKind kind);

/// A kernel under test, as it declares itself.
struct Implementation {
  std::string name;  ///< "cuda-blockscan"; the device kind comes first
  std::string op;    ///< name of the OpSpec it computes
  DeviceKind device = DeviceKind::cpu;
  std::string summary;
  /// What inputs its algorithm is known to get wrong, for those kept to show it; empty for all others. A
  /// result that is out of tolerance is a fail all the same, with this beside the reason; `run` leaves it out
  /// unless --impl is given.
  std::string known_failure = {};
  /// Kept to compare algorithms: runs only when --impl or a sweep's "impl" is given, as does one with a known
  /// failure.
  bool only_when_named = false;
  /// Arithmetic it claims on problems of an io dtype; tolerances are derived from it.
  std::function<Arithmetic(DType io)> arithmetic = [](DType) { return Arithmetic(); };
  bool deterministic = true;  ///< bitwise equal results from equal inputs
  /// Why it cannot do the problem; nothing when it can.
  std::function<std::optional<std::string>(const Problem&)> unsupported;
  std::function<std::size_t(const Problem&)> workspace_bytes;
  /// What its algorithm has to do at least, where that may be less than its operation's least work; null
  /// elsewhere.
  std::function<Work(const Problem&)> work = nullptr;
  /// Resolves tensors (in the device's memory) to arguments once; the result is launched many times.
  /// Throws ContractError when a tensor does not have the problem's shape.
  std::function<Launch(const Problem&, const TensorSet&, void* workspace)> bind;
};

/// Everything that is built in, ordered by op and name.
const std::vector<Implementation>& implementations();

/// A kernel file registers itself with one line: `const Registration registration{{.name = …}};`
struct Registration {
  explicit Registration(Implementation implementation);
};

/// What one launch of it has to move and compute at least.
Work least_work(const Implementation& implementation, const Problem& problem);

/// Throws ContractError unless `tensors` holds exactly the problem's tensors, each with its dtype, shape and
/// strides.
void check_contract(const Problem& problem, const TensorSet& tensors);

}  // namespace ssmbench

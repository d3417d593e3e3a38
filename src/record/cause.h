#pragma once

#include <array>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/errors.h"

namespace ssmbench {

/// What kept a case from passing. Scripts rely on the words (name_of); docs/causes.md lists them.
enum class Cause {
  // fail
  tolerance,     ///< an element is further from the reference than its tolerance
  nonfinite,     ///< NaN or Inf where the reference is finite
  distribution,  ///< each element is within its tolerance; rounding does not explain the errors as a whole
  not_judged,    ///< an honest implementation may overflow at every element
  nondeterministic,  ///< other bits from equal inputs, where the implementation claims equal ones
  // invalid
  guard_band,      ///< memory outside of a buffer was written
  inputs_changed,  ///< an input was written
  too_fast,        ///< faster than the ceilings of the device allow
  late_work,       ///< work went on after a launch had ended
  // error
  crash,          ///< the worker process ended by a signal or by itself
  timeout,        ///< it took longer than --timeout, or did not end
  out_of_memory,  ///< host or device memory
  device_error,   ///< the device reported an error
  contract,       ///< a tensor was refused for its shape, dtype or strides
  exception,      ///< any other failure that the implementation reported
  protocol,       ///< the worker process sent what makes no sense: its memory may be overwritten
  inputs,         ///< the process ended or hung while the inputs were generated
  reference,      ///< the process ended or hung while the reference was computed
  worker,         ///< no worker process got as far as a case
  // skip
  unsupported,      ///< the implementation does not support the case
  only_when_named,  ///< it runs only when --impl names it
  inapplicable,     ///< the check of a study does not apply to the case
};
inline constexpr std::array kAllCauses{
    Cause::tolerance,        Cause::nonfinite,   Cause::distribution,   Cause::not_judged,
    Cause::nondeterministic, Cause::guard_band,  Cause::inputs_changed, Cause::too_fast,
    Cause::late_work,        Cause::crash,       Cause::timeout,        Cause::out_of_memory,
    Cause::device_error,     Cause::contract,    Cause::exception,      Cause::protocol,
    Cause::inputs,           Cause::reference,   Cause::worker,         Cause::unsupported,
    Cause::only_when_named,  Cause::inapplicable};

std::string_view name_of(Cause cause);
/// Nothing where the word is no cause.
std::optional<Cause> cause_named(std::string_view name);

/// Why a case did not pass: for programs and for people.
struct Explanation {
  Cause cause;
  std::string reason;
};

/// Thrown where more is known than an exception's type says.
struct ExplainedError : DeviceError {
  explicit ExplainedError(Explanation explanation)
      : DeviceError(explanation.reason), why(std::move(explanation)) {}
  Explanation why;
};

/// Explains an exception that an implementation or its device threw.
Explanation explain(const std::exception& error);

}  // namespace ssmbench

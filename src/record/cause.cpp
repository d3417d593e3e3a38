#include "record/cause.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "base/errors.h"

namespace ssmbench {

std::string_view name_of(Cause cause) {
  switch (cause) {
    case Cause::tolerance:
      return "tolerance";
    case Cause::nonfinite:
      return "nonfinite";
    case Cause::distribution:
      return "distribution";
    case Cause::not_judged:
      return "not_judged";
    case Cause::nondeterministic:
      return "nondeterministic";
    case Cause::guard_band:
      return "guard_band";
    case Cause::inputs_changed:
      return "inputs_changed";
    case Cause::too_fast:
      return "too_fast";
    case Cause::late_work:
      return "late_work";
    case Cause::crash:
      return "crash";
    case Cause::timeout:
      return "timeout";
    case Cause::out_of_memory:
      return "out_of_memory";
    case Cause::device_error:
      return "device_error";
    case Cause::contract:
      return "contract";
    case Cause::exception:
      return "exception";
    case Cause::protocol:
      return "protocol";
    case Cause::inputs:
      return "inputs";
    case Cause::reference:
      return "reference";
    case Cause::worker:
      return "worker";
    case Cause::unsupported:
      return "unsupported";
    case Cause::only_when_named:
      return "only_when_named";
    case Cause::inapplicable:
      return "inapplicable";
  }
  throw std::logic_error("unreachable");
}

std::optional<Cause> cause_named(std::string_view name) {
  const auto* const found = std::ranges::find(kAllCauses, name, [](Cause cause) { return name_of(cause); });
  return found == kAllCauses.end() ? std::nullopt : std::optional(*found);
}

Explanation explain(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return {Cause::out_of_memory, "out of host memory"};
  if (const auto* explained = dynamic_cast<const ExplainedError*>(&error)) return explained->why;
  Cause cause = Cause::exception;
  if (dynamic_cast<const DeviceError*>(&error) != nullptr) cause = Cause::device_error;
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr) cause = Cause::out_of_memory;
  if (dynamic_cast<const ContractError*>(&error) != nullptr) cause = Cause::contract;
  return {cause, error.what()};
}

}  // namespace ssmbench

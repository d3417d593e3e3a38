#include "record/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace ssmbench {

std::string_view name_of(Status status) {
  switch (status) {
    case Status::pass:
      return "pass";
    case Status::fail:
      return "fail";
    case Status::skip:
      return "skip";
    case Status::error:
      return "error";
    case Status::invalid:
      return "invalid";
    case Status::unverified:
      return "unverified";
  }
  throw std::logic_error("unreachable");
}

std::optional<Status> status_named(std::string_view name) {
  for (const Status status :
       {Status::pass, Status::fail, Status::skip, Status::error, Status::invalid, Status::unverified})
    if (name_of(status) == name) return status;
  return {};
}

std::string CaseResult::lowered_arithmetic() const {
  if (!claims) return "";
  const double of_case = unit_roundoff(the_case.problem.dtype());
  std::string text;
  if (unit_roundoff(claims->math) > of_case) text = name_of(claims->math);
  if (unit_roundoff(claims->state_dtype) > of_case)
    text += fmt::format("{}{} states", text.empty() ? "" : ", ", name_of(claims->state_dtype));
  return text;
}

bool CaseResult::judged_by_user() const {
  return std::ranges::any_of(outputs,
                             [](const auto& entry) { return entry.second.user_tolerance.has_value(); });
}

const TimingStats* CaseResult::headline() const {
  const auto hot = timing.find("hot");
  return hot == timing.end() ? nullptr : &hot->second;
}

}  // namespace ssmbench

#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "record/result.h"

namespace ssmbench {

/// What teams are held against: by case, the fastest implementation that passed on one device of their kind.
class BestOfOne {
 public:
  /// Of a device by itself; other results do not matter.
  void add(const CaseResult& result);
  /// Of a team that passed and was timed, once a device by itself has been. A plan has teams last.
  std::optional<Scaling> scaling_of(const CaseResult& result) const;

 private:
  struct Best {
    std::string impl;
    double ms;
  };
  std::map<std::pair<std::string, std::string>, Best> best_;  ///< by case and kind of device
};

}  // namespace ssmbench

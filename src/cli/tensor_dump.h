#pragma once

#include <string>
#include <vector>

#include "interchange/writer.h"
#include "sweep/job_result.h"
#include "sweep/plan.h"

namespace ssmbench {

/// `run --dump`: the tensors of the cases of one implementation, with the reference, as an interchange file.
class TensorDump {
 public:
  /// `failed_only`: cases out of tolerance only. Throws UsageError when the plan has several implementations
  /// (a file has one producer) or when the file cannot be made.
  TensorDump(const std::string& file, bool failed_only, const Plan& plan,
             const std::vector<std::string>& argv, const std::string& created);

  void add(const FinishedJob& job);
  /// Moves in what a worker wrote, if there is such a file.
  void take(const std::string& part);
  /// Gives the file its name. An interrupted run keeps what it finished.
  void finish() { writer_.finish(); }

 private:
  InterchangeWriter writer_;
  bool failed_only_;
};

}  // namespace ssmbench

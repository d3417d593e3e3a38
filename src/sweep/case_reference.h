#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <vector>

#include "model/arithmetic.h"
#include "model/case.h"
#include "model/tensor.h"
#include "record/result.h"
#include "reference/reference.h"

namespace ssmbench {

/// What outputs of a case are judged by: its reference in memory, or where that is too large in parts, which
/// are computed anew each time that something is compared.
class CaseReference {
 public:
  explicit CaseReference(ReferenceOutputs outputs) : outputs_(std::move(outputs)) {}
  /// In memory where it takes `bytes` at most. `inputs` of the problem, and in parts the problem too, have to
  /// live as long. Throws what compute_reference throws.
  CaseReference(const Problem& problem, const std::vector<HostTensor>& inputs, std::size_t bytes,
                const std::atomic<bool>& stop);

  /// Null in parts.
  const ReferenceOutputs* in_memory() const { return outputs_ ? &*outputs_ : nullptr; }

  /// Judges some of a launch's outputs, `judged`, whose scales are among `all` of them. Throws Interrupted.
  std::vector<OutputComparison> compare(const std::vector<const HostTensor*>& judged,
                                        const std::vector<HostTensor>& all, const Arithmetic& arithmetic,
                                        const Case& the_case) const;
  /// What the reference says about elements without a value, whatever implementation was run; empty as a
  /// rule.
  std::string note() const;

 private:
  std::optional<ReferenceOutputs> outputs_;
  // In parts:
  const Problem* problem_ = nullptr;
  const std::vector<HostTensor>* inputs_ = nullptr;
  std::size_t bytes_ = 0;
  const std::atomic<bool>* stop_ = nullptr;
};

}  // namespace ssmbench

#include "reference/reference.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "reference/common/zeros.h"

namespace ssmbench {
namespace {

std::vector<Reference>& registry() {
  static std::vector<Reference> all;
  return all;
}

const Reference& reference_of(const Problem& problem) {
  const auto found = std::ranges::find(registry(), problem.op().name, &Reference::op);
  if (found == registry().end())
    throw std::logic_error(fmt::format("{} has no reference", problem.op().name));
  return *found;
}

/// Exponentials and multiply-adds of a problem below which one thread is faster: others have to be woken and
/// waited for, which takes milliseconds where cores are busy.
constexpr double kWorthThreads = 1 << 16;

/// Parallel regions that the calling thread begins have one thread while this lives.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  OneThread(OneThread&&) = delete;
  OneThread& operator=(OneThread&&) = delete;

 private:
  int before_;
};

bool is_worth_threads(const Problem& problem) {
  const Work work = problem.op().least_work(problem, Math::f32);
  return work.exponentials + work.fmas >= kWorthThreads;
}

}  // namespace

ReferenceRegistration::ReferenceRegistration(Reference reference) {
  registry().push_back(std::move(reference));
}

ReferenceOutput empty_output(Shape shape) {
  const auto count = static_cast<std::size_t>(element_count(shape));
  return {std::move(shape), zeros<double>(count), zeros<float>(count)};
}

std::size_t output_bytes(const Problem& problem, bool (*has_third)(const TensorSpec& output)) {
  std::size_t bytes = 0;
  for (const auto& tensor : problem.tensors()) {
    if (tensor.role != Role::output) continue;
    const std::int64_t elements = element_count(tensor.shape) * (tensor.dtype == DType::c64 ? 2 : 1);
    bytes +=
        static_cast<std::size_t>(elements) * (sizeof(double) + (has_third(tensor) ? 2 : 1) * sizeof(float));
  }
  return bytes;
}

ReferenceOutputs compute_reference(const Problem& problem, const TensorSet& inputs,
                                   const std::atomic<bool>& stop) {
  std::optional<OneThread> alone;
  if (!is_worth_threads(problem)) alone.emplace();
  return reference_of(problem).compute(problem, inputs, stop);
}

std::size_t reference_bytes(const Problem& problem) {
  return reference_of(problem).bytes(problem);
}

}  // namespace ssmbench

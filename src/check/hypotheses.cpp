#include "check/hypotheses.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "model/tensor_map.h"
#include "reference/reference.h"
#include "verify/compare.h"
#include "verify/dequantized.h"

namespace ssmbench {
namespace {

/// The inputs that the problem has, which may be fewer than were read.
TensorSet inputs_of(const Problem& problem, const CaseRead& read) {
  const TensorSet all = views_of(read.inputs);
  TensorSet chosen;
  for (const auto& spec : problem.tensors())
    if (spec.role == Role::input) chosen.add(spec.name, all.at(spec.name));
  return chosen;
}

/// The problem with one axis changed, where that makes sense.
std::optional<Problem> changed(const Problem& problem, const std::string& axis, const AxisValue& value) {
  try {
    return problem.with({{axis, value}});
  } catch (const ContractError&) {
    return {};
  }
}

/// A copy of the tensor whose entry k along the axis with this letter is entry order[k]; without such an axis
/// an equal one.
HostTensor reordered(const HostTensor& tensor, char letter, const std::vector<std::int64_t>& order) {
  const auto axis = tensor.spec.axes.find(letter);
  return gathered(tensor.spec, tensor, [&](const Shape& here, Shape& there) {
    there = here;
    if (axis != std::string::npos) there[axis] = order[here[axis]];
  });
}

class Explainer {
 public:
  Explainer(const CaseRead& read, const std::set<std::string>& failed, const std::atomic<bool>& stop)
      : read_(read), failed_(failed), stop_(stop) {}

  std::string explain() const {
    for (const auto& axis : read_.problem.op().axes) {
      if (!read_.problem.has(axis)) continue;
      if (axis.kind == AxisKind::flag && read_.problem.flag(axis.name) && explained_by(axis.name, false))
        return axis.name + " is not applied";
      if (axis.role == AxisRole::method)
        for (const auto& method : axis.choices)
          if (explained_by(axis.name, method))
            return fmt::format("these are the outputs of {} {}", axis.name, method);
    }
    for (const auto& [one, other] : read_.problem.op().look_alikes)
      if (explained_by_swap(one, other)) return fmt::format("{} and {} are swapped", one, other);
    if (explained_by_tiling())
      return "groups are tiled (channel modulo groups) where they should be repeated";
    return "";
  }

 private:
  bool passes(const Problem& problem, const TensorSet& inputs, const std::vector<HostTensor>& outputs) const {
    try {
      return agree(compute_reference(problem, inputs, stop_), outputs);
    } catch (const ContractError&) {  // indices, say, that mean nothing in the places of others
      return false;
    }
  }

  bool agree(const ReferenceOutputs& reference, const std::vector<HostTensor>& outputs) const {
    bool explains = false;
    for (const auto& output : outputs) {
      const auto expected = reference.find(output.spec.name);
      if (expected == reference.end()) continue;
      const auto values = dequantized(output, outputs);
      const TensorView view = (values ? *values : output).view();
      if (element_count(real_view(view).shape) != static_cast<std::int64_t>(expected->second.expected.size()))
        return false;  // the problem has outputs of other shapes
      const auto comparison = compare_output(view, expected->second.expectation(), read_.arithmetic);
      // Where the mistake lets everything overflow, nothing speaks for or against it.
      if (comparison.judged == 0) continue;
      if (!comparison.passed()) return false;
      explains = explains || failed_.contains(output.spec.name);
    }
    return explains;
  }

  bool explained_by(const std::string& axis, const AxisValue& value) const {
    const auto problem = changed(read_.problem, axis, value);
    if (!problem) return false;
    const TensorSet inputs = inputs_of(*problem, read_);
    // An axis may change the shapes of inputs: the reference would read past those that there are.
    for (const auto& spec : problem->tensors())
      if (spec.role == Role::input && inputs.at(spec.name).shape != spec.shape) return false;
    return passes(*problem, inputs, read_.outputs);
  }

  bool explained_by_swap(const std::string& one, const std::string& other) const {
    TensorSet inputs = views_of(read_.inputs);
    const TensorView* found = inputs.find(one);
    const TensorView* other_found = inputs.find(other);
    if (found == nullptr || other_found == nullptr || found->shape != other_found->shape ||
        found->dtype != other_found->dtype)
      return false;
    const TensorView view = *found;
    inputs.add(one, *other_found);
    inputs.add(other, view);
    return passes(read_.problem, inputs, read_.outputs);
  }

  /// Tiled groups are repeated groups of reordered channels: of channels in the order that brings those of a
  /// tiled group together.
  bool explained_by_tiling() const {
    const Problem& problem = read_.problem;
    const AxisSpec* channel_axis = problem.find_axis(AxisRole::channel);
    const std::int64_t groups = problem.groups();
    if (channel_axis == nullptr || groups == 1) return false;
    const std::int64_t channels = problem.size(channel_axis->name);
    std::vector<std::int64_t> order;
    for (std::int64_t group = 0; group < groups; ++group)
      for (std::int64_t channel = group; channel < channels; channel += groups) order.push_back(channel);

    const auto reorder = [&](const std::vector<HostTensor>& tensors) {
      std::vector<HostTensor> all;
      for (const auto& tensor : tensors) all.push_back(reordered(tensor, channel_axis->letter, order));
      return all;
    };
    const auto inputs = reorder(read_.inputs);
    return passes(problem, views_of(inputs), reorder(read_.outputs));
  }

  const CaseRead& read_;
  const std::set<std::string>& failed_;
  const std::atomic<bool>& stop_;
};

}  // namespace

std::string explanation_of(const CaseRead& read, const std::set<std::string>& failed,
                           const std::atomic<bool>& stop) {
  return Explainer(read, failed, stop).explain();
}

}  // namespace ssmbench

#include "model/implementation.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "base/errors.h"

namespace ssmbench {
namespace {

std::vector<Implementation>& registry() {
  static std::vector<Implementation> all;
  return all;
}

}  // namespace

std::string_view name_of(DeviceKind kind) {
  return kind == DeviceKind::cpu ? "cpu" : "cuda";
}

const std::vector<Implementation>& implementations() {
  return registry();
}

Registration::Registration(Implementation implementation) {
  auto& all = registry();
  const auto key = [](const Implementation& i) { return std::tie(i.op, i.name); };
  const auto place = std::ranges::lower_bound(all, key(implementation), std::less<>(), key);
  if (place != all.end() && key(*place) == key(implementation))
    throw std::logic_error(
        fmt::format("{} is registered twice for {}", implementation.name, implementation.op));
  all.insert(place, std::move(implementation));
}

Work least_work(const Implementation& implementation, const Problem& problem) {
  if (implementation.work) return implementation.work(problem);
  return problem.op().least_work(problem, implementation.arithmetic(problem.dtype()).math);
}

void check_contract(const Problem& problem, const TensorSet& tensors) {
  const auto specs = problem.tensors();
  for (const auto& spec : specs) {
    const TensorView& view = tensors.at(spec.name);
    if (view.shape != spec.shape)
      throw ContractError(fmt::format("tensor '{}' has shape {}, {} needs {}", spec.name,
                                      to_string(view.shape), problem.op().name, to_string(spec.shape)));
    if (view.dtype != spec.dtype)
      throw ContractError(fmt::format("tensor '{}' is {}, {} needs {}", spec.name, name_of(view.dtype),
                                      problem.op().name, name_of(spec.dtype)));
    if (view.strides != spec.strides())
      throw ContractError(fmt::format("tensor '{}' does not lie in memory as its layout says", spec.name));
    if (view.data == nullptr) throw ContractError(fmt::format("tensor '{}' has no memory", spec.name));
  }
  for (const auto& [name, _] : tensors.all())
    if (std::ranges::find(specs, name, &TensorSpec::name) == specs.end())
      throw ContractError(fmt::format("{} has no tensor '{}' with these options", problem.op().name, name));
}

}  // namespace ssmbench

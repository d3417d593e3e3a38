#include "support/team_run.h"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>

#include "inputs/inputs.h"
#include "model/tensor_map.h"
#include "support/host_tensors.h"
#include "support/ranks.h"
#include "verify/compare.h"

namespace ssmbench::test {
namespace {

void fill_with_nan(const HostBuffer& buffer) {
  std::memset(buffer.data(), 0xFF, buffer.bytes());
}

std::vector<HostTensor> parts_of_outputs(const Problem& problem, const Box& box) {
  std::vector<HostTensor> parts;
  for (const auto& spec : specs_of(problem, Role::output)) parts.emplace_back(part_of(spec, box));
  return parts;
}

std::size_t bytes_of(const std::vector<HostTensor>& tensors) {
  std::size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor.spec.bytes();
  return bytes;
}

void copy_out(const std::vector<HostTensor>& tensors, std::byte* to) {
  for (const auto& tensor : tensors) {
    std::memcpy(to, tensor.buffer.data(), tensor.spec.bytes());
    to += tensor.spec.bytes();
  }
}

/// In the rank's process; leaves its outputs in `results`.
void launch_rank(const Case& one, const DistributedImplementation& implementation, const TeamChanges& changes,
                 Communicator& team, std::byte* results) {
  const Box box = implementation.box(one.problem, team.rank(), team.size());
  const Box from = changes.input_box ? changes.input_box(box, team.rank()) : box;
  const auto inputs = generate_inputs(one.problem, one.inputs, from, never_stop);
  if (changes.edit)
    for (const auto& input : inputs) changes.edit(input);
  const auto outputs = parts_of_outputs(one.problem, box);
  const HostBuffer workspace(implementation.workspace_bytes(one.problem, team.rank(), team.size()));
  TensorSet tensors = views_of(inputs);
  for (const auto& output : outputs) tensors.add(output.spec.name, output.view());
  const Launch launch = implementation.bind(one.problem, tensors, workspace.data(), team).launch;
  std::vector<std::byte> first(bytes_of(outputs));
  for (const bool again : {false, true}) {
    for (const auto& output : outputs) fill_with_nan(output.buffer);
    fill_with_nan(workspace);
    launch(nullptr);
    copy_out(outputs, again ? results : first.data());
  }
  if (std::memcmp(first.data(), results, first.size()) != 0)
    throw std::runtime_error("a second launch gives other bits");
}

}  // namespace

std::string TeamOutcome::failures() const {
  std::string all;
  for (std::size_t rank = 0; rank < endings.size(); ++rank)
    if (!endings[rank].empty()) all += fmt::format("rank {}: {}\n", rank, endings[rank]);
  return all;
}

TeamOutcome run_team(const Case& one, const DistributedImplementation& implementation, int ranks,
                     const TeamChanges& changes) {
  std::vector<std::vector<HostTensor>> parts;  // of each rank
  std::vector<std::size_t> begins{0};
  for (int rank = 0; rank < ranks; ++rank) {
    parts.push_back(parts_of_outputs(one.problem, implementation.box(one.problem, rank, ranks)));
    begins.push_back(begins.back() + bytes_of(parts.back()));
  }
  const SharedBytes results(begins.back());
  const auto results_of = [&](int rank) { return results.data() + begins[static_cast<std::size_t>(rank)]; };
  TeamOutcome run{.endings = run_ranks(ranks,
                                       [&](Communicator& team) {
                                         launch_rank(one, implementation, changes, team,
                                                     results_of(team.rank()));
                                       }),
                  .outputs = blank_outputs(one.problem)};
  for (int rank = 0; rank < ranks; ++rank) {
    const Box box = implementation.box(one.problem, rank, ranks);
    const std::byte* from = results_of(rank);
    for (std::size_t i = 0; i < run.outputs.size(); ++i) {
      const HostTensor& part = parts[static_cast<std::size_t>(rank)][i];
      std::memcpy(part.buffer.data(), from, part.spec.bytes());
      from += part.spec.bytes();
      const bool is_cut = part.spec.shape != run.outputs[i].spec.shape;
      if (!is_cut && ranks > 1 && implementation.holder(part.spec.name, ranks) != rank) continue;
      const Shape begin = begin_of(run.outputs[i].spec, box);
      scatter(part, run.outputs[i], [&](const Shape& here, Shape& there) {
        for (std::size_t axis = 0; axis < here.size(); ++axis) there[axis] = here[axis] + begin[axis];
      });
    }
  }
  return run;
}

WholeCase::WholeCase(const Case& one, const TeamChanges& changes)
    : case_(one), changes_(changes), inputs_(generate_inputs(one.problem, one.inputs, never_stop)) {
  if (changes_.edit)
    for (const auto& input : inputs_) changes_.edit(input);
  reference_ = compute_reference(case_.problem, views_of(inputs_), never_stop);
}

std::string WholeCase::faults(const std::vector<HostTensor>& outputs) const {
  std::string all;
  for (const auto& output : outputs) {
    const auto found =
        compare_output(output.view(), reference_.at(output.spec.name).expectation(), Arithmetic());
    if (found.nonfinite > 0 || !(found.tolerance_ratio <= 1) || found.judged == 0)
      all += fmt::format("{} {}: {} times the tolerance at {}, {} not finite\n", case_.problem.id(),
                         output.spec.name, found.tolerance_ratio,
                         index_text(found.worst_index, output.spec.axes), found.nonfinite);
  }
  return all;
}

std::string WholeCase::faults_of(const DistributedImplementation& implementation, int ranks) const {
  const TeamOutcome run = run_team(case_, implementation, ranks, changes_);
  const std::string failures = run.failures();
  return failures.empty() ? faults(run.outputs) : failures;
}

const DistributedImplementation& find_distributed(const std::string& op, const std::string& name) {
  for (const auto& implementation : distributed_implementations())
    if (implementation.op == op && implementation.name == name) return implementation;
  throw std::logic_error("there is no " + name + " for " + op);
}

}  // namespace ssmbench::test

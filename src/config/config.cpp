#include "config/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "base/errors.h"
#include "base/fnv1a.h"
#include "config/document.h"
#include "config/schema.h"
#include "config/sweep.h"

namespace ssmbench {
namespace {

std::vector<Case> expand_all(const std::vector<Sweep>& sweeps) {
  std::vector<Case> all;
  for (const auto& sweep : sweeps)
    for (auto& one : expand(sweep)) all.push_back(std::move(one));
  return all;
}

void reject_duplicates(const std::vector<Case>& cases) {
  std::map<std::string, const Source*> seen;
  for (const auto& one : cases) {
    const auto [first, is_new] = seen.emplace(one.id(), &one.source);
    if (!is_new)
      fail(one.source,
           fmt::format("the case {} is already in {}: {}", one.id(), first->second->file,
                       first->second->pointer),
           "each case once");
  }
}

void drop_duplicates(std::vector<Case>& cases) {
  std::set<std::string> seen;
  std::erase_if(cases, [&](const Case& one) { return !seen.insert(one.id()).second; });
}

void apply_to_some(std::vector<Sweep>& sweeps, const Override& change) {
  bool applied = false;
  for (auto& sweep : sweeps) applied |= apply_override(sweep, change);
  if (applied) return;
  std::vector<std::string> known;
  for (const auto& sweep : sweeps)
    for (auto& name : axis_names(sweep.op->name))
      if (std::ranges::find(known, name) == known.end()) known.push_back(std::move(name));
  throw UsageError(fmt::format("{}: no sweep has an axis {}; expected one of {}", change.origin,
                               shown(change.axis), fmt::join(known, ", ")));
}

void apply_overrides(std::vector<Sweep>& sweeps, const std::vector<Override>& overrides) {
  std::set<std::string> changed;
  for (const auto& change : overrides) {
    if (!changed.insert(change.axis).second)
      throw UsageError(fmt::format("{}: {} is overridden twice; expected each axis once", change.origin,
                                   shown(change.axis)));
    apply_to_some(sweeps, change);
  }
}

/// Checks the sweep, and adds hashes of its cases' ids: a million of them take little memory.
void add_ids(const Sweep& sweep, std::vector<std::uint64_t>& ids) {
  const std::size_t before = ids.size();
  ids.resize(before + count_cases(sweep));
  visit_cases(sweep, Checks::all, [&](std::size_t i, const Case& one) { ids[before + i] = fnv1a(one.id()); });
}

std::vector<Sweep> read_all(const std::vector<std::filesystem::path>& files) {
  std::vector<Sweep> sweeps;
  for (const auto& file : files)
    for (auto& sweep : read_sweeps(file)) sweeps.push_back(std::move(sweep));
  return sweeps;
}

}  // namespace

std::vector<Case> load_configs(const std::vector<std::filesystem::path>& files,
                               const std::vector<Override>& overrides, bool quick) {
  std::vector<Sweep> sweeps = read_all(files);

  // What the files say has to be right by itself: an override hides none of their errors.
  std::vector<Case> cases = expand_all(sweeps);
  reject_duplicates(cases);
  if (overrides.empty() && !quick) return cases;

  if (quick)
    for (auto& sweep : sweeps) make_quick(sweep);
  apply_overrides(sweeps, overrides);
  cases = expand_all(sweeps);
  drop_duplicates(cases);
  return cases;
}

void visit_configs(const std::vector<std::filesystem::path>& files,
                   const std::function<void(std::vector<Case>)>& visit) {
  const std::vector<Sweep> sweeps = read_all(files);
  std::vector<std::uint64_t> ids;
  for (const auto& sweep : sweeps) add_ids(sweep, ids);
  std::ranges::sort(ids);
  if (std::ranges::adjacent_find(ids) != ids.end()) reject_duplicates(expand_all(sweeps));
  for (const auto& sweep : sweeps) visit(expand(sweep, Checks::none));
}

std::vector<Case> load_config(const std::filesystem::path& file, const std::vector<Override>& overrides,
                              bool quick) {
  return load_configs({file}, overrides, quick);
}

}  // namespace ssmbench

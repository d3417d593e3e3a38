#pragma once

#include <cstdlib>

#include "support/temporary_folder.h"

namespace ssmbench::test {

/// A cache folder of its own for this process and those that it starts.
class OwnCache {
 public:
  OwnCache() { setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  ~OwnCache() { unsetenv("XDG_CACHE_HOME"); }
  OwnCache(const OwnCache&) = delete;
  OwnCache& operator=(const OwnCache&) = delete;
  OwnCache(OwnCache&&) = delete;
  OwnCache& operator=(OwnCache&&) = delete;

  std::string ceilings_file() const { return folder_ / "ssmbench/ceilings.json"; }
  const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
};

}  // namespace ssmbench::test

// The only file that sees nccl.h. The library is looked for at run time: a program that was built with it runs
// on machines without it.

#include "team/nccl_team.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <nccl.h>

#include <cstring>
#include <vector>

#include "base/errors.h"

namespace ssmbench {
namespace {

/// What is called of the library.
struct Nccl {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) init_rank = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  bool is_usable = false;

  Nccl() {
    library_ = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);  // stays: it has threads of its own
    if (library_ == nullptr) return;
    is_usable = find("ncclGetVersion", get_version) && find("ncclGetErrorString", error_string) &&
                find("ncclGetUniqueId", get_unique_id) && find("ncclCommInitRank", init_rank) &&
                find("ncclCommAbort", abort) && find("ncclAllGather", all_gather) &&
                find("ncclAllReduce", all_reduce) && find("ncclSend", send) && find("ncclRecv", receive) &&
                find("ncclGroupStart", group_start) && find("ncclGroupEnd", group_end);
  }

  void check(ncclResult_t result, const char* what) const {
    if (result != ncclSuccess) throw TeamError(fmt::format("NCCL, {}: {}", what, error_string(result)));
  }

 private:
  template <class Function>
  bool find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    return function != nullptr;
  }

  void* library_ = nullptr;
};

const Nccl& library() {
  static const Nccl found;
  return found;
}

/// The library, which is there.
const Nccl& nccl() {
  if (!library().is_usable) throw DeviceError("there is no libnccl.so.2");
  return library();
}

const char* byte_at(const void* data, std::size_t offset) {
  return static_cast<const char*>(data) + offset;
}
char* byte_at(void* data, std::size_t offset) {
  return static_cast<char*>(data) + offset;
}
cudaStream_t cuda(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

/// Of 22809.
std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

class NcclTeam : public Communicator {
 public:
  explicit NcclTeam(Communicator& host) : host_(host) {
    ncclUniqueId own{};
    if (host.rank() == 0) nccl().check(nccl().get_unique_id(&own), "id");
    std::vector<ncclUniqueId> ids(static_cast<std::size_t>(host.size()));
    host.all_gather(&own, ids.data(), sizeof own, nullptr);
    nccl().check(nccl().init_rank(&communicator_, host.size(), ids.front(), host.rank()), "start");
  }
  /// Not ncclCommDestroy, which may wait for ranks that have ended.
  ~NcclTeam() override { nccl().abort(communicator_); }
  NcclTeam(const NcclTeam&) = delete;
  NcclTeam& operator=(const NcclTeam&) = delete;
  NcclTeam(NcclTeam&&) = delete;
  NcclTeam& operator=(NcclTeam&&) = delete;

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }

  void all_gather(const void* from, void* to, std::size_t bytes, void* stream) override {
    if (size() > 2 && bytes >= kWorthMessages) return gather_by_messages(from, to, bytes, stream);
    nccl().check(nccl().all_gather(from, to, bytes, ncclInt8, communicator_, cuda(stream)), "all_gather");
  }
  void all_reduce(float* values, std::size_t count, void* stream) override {
    nccl().check(nccl().all_reduce(values, values, count, ncclFloat32, ncclSum, communicator_, cuda(stream)),
                 "all_reduce");
  }
  void all_to_all(const void* from, void* to, std::size_t bytes, void* stream) override {
    nccl().check(nccl().group_start(), "all_to_all");
    for (int other = 0; other < size(); ++other) {
      send(byte_at(from, static_cast<std::size_t>(other) * bytes), bytes, other, stream);
      receive(byte_at(to, static_cast<std::size_t>(other) * bytes), bytes, other, stream);
    }
    nccl().check(nccl().group_end(), "all_to_all");
  }
  void send(const void* from, std::size_t bytes, int to, void* stream) override {
    nccl().check(nccl().send(from, bytes, ncclInt8, to, communicator_, cuda(stream)), "send");
  }
  void receive(void* to, std::size_t bytes, int from, void* stream) override {
    nccl().check(nccl().receive(to, bytes, ncclInt8, from, communicator_, cuda(stream)), "receive");
  }

  void barrier() override { host_.barrier(); }
  double agree(double value) override { return host_.agree(value); }

 private:
  /// From this size on ranks, if they are more than two, send their parts to all others at once: 2.6 MB of
  /// each of four H200 take 48 us, and 53 by NCCL's all-gather.
  static constexpr std::size_t kWorthMessages = std::size_t{1} << 20;

  void gather_by_messages(const void* from, void* to, std::size_t bytes, void* stream) {
    nccl().check(nccl().group_start(), "all_gather");
    for (int other = 0; other < size(); ++other) {
      char* const part = byte_at(to, static_cast<std::size_t>(other) * bytes);
      if (part == from) continue;  // in place
      send(from, bytes, other, stream);
      receive(part, bytes, other, stream);
    }
    nccl().check(nccl().group_end(), "all_gather");
  }

  Communicator& host_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace

std::string nccl_built_with() {
  return version_text(NCCL_VERSION_CODE);
}

std::string nccl_version() {
  int version = 0;
  if (!library().is_usable || nccl().get_version(&version) != ncclSuccess) return "";
  return version_text(version);
}

std::unique_ptr<Communicator> join_nccl(Communicator& host) {
  return std::make_unique<NcclTeam>(host);
}

}  // namespace ssmbench

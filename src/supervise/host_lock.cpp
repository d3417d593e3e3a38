#include "supervise/host_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/errors.h"

namespace ssmbench {
namespace {

// Bytes of the file, two for each lock. Whoever wants it goes through the gate, and waits there for what is
// behind: nobody passes one that waits for all others to leave.
off_t gate_of(HostLock::Of what) {
  return what == HostLock::Of::host ? 0 : 2;
}
off_t behind_gate(HostLock::Of what) {
  return gate_of(what) + 1;
}

/// A lock of the process on one byte: no child has it, and no descriptor outlives it. False: somebody else
/// has it, where this does not wait.
bool set(int descriptor, off_t byte, short type, bool waits) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  while (fcntl(descriptor, waits ? F_SETLKW : F_SETLK, &lock) != 0) {
    if (errno == EINTR) continue;
    if (!waits && (errno == EAGAIN || errno == EACCES)) return false;
    throw DeviceError(fmt::format("cannot lock the host: {}", std::strerror(errno)));
  }
  return true;
}

short type_of(HostLock::Kind kind) {
  return kind == HostLock::Kind::alone ? F_WRLCK : F_RDLCK;
}

}  // namespace

HostLockFile::HostLockFile() : descriptor_(memfd_create("ssmbench-host-lock", MFD_CLOEXEC)) {
  if (descriptor_ < 0) throw DeviceError(fmt::format("cannot make a host lock: {}", std::strerror(errno)));
}

HostLockFile::~HostLockFile() {
  close(descriptor_);
}

std::string HostLockFile::path() const {
  return fmt::format("/proc/{}/fd/{}", getpid(), descriptor_);
}

HostLock::HostLock(const std::string& path, Of what)
    : descriptor_(open(path.c_str(), O_RDWR | O_CLOEXEC)), what_(what) {
  if (descriptor_ < 0)
    throw DeviceError(fmt::format("{}: cannot open the host lock: {}", path, std::strerror(errno)));
}

HostLock::~HostLock() {
  close(descriptor_);
}

bool HostLock::try_lock(Kind kind) {
  if (!set(descriptor_, gate_of(what_), F_WRLCK, false)) return false;
  const bool has = set(descriptor_, behind_gate(what_), type_of(kind), false);
  set(descriptor_, gate_of(what_), F_UNLCK, true);
  return has;
}

void HostLock::lock(Kind kind) {
  set(descriptor_, gate_of(what_), F_WRLCK, true);
  set(descriptor_, behind_gate(what_), type_of(kind), true);
  set(descriptor_, gate_of(what_), F_UNLCK, true);
}

void HostLock::unlock() {
  set(descriptor_, behind_gate(what_), F_UNLCK, true);
}

bool HostLock::is_wanted() const {
  struct flock gate {};
  gate.l_type = F_WRLCK;
  gate.l_whence = SEEK_SET;
  gate.l_start = gate_of(what_);
  gate.l_len = 1;
  return fcntl(descriptor_, F_GETLK, &gate) == 0 && gate.l_type != F_UNLCK;
}

}  // namespace ssmbench

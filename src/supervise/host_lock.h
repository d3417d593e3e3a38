#pragma once

#include <string>

namespace ssmbench {

/// What the processes of one run on one host lock: a file without a name, which lives as long as its owner.
/// The others, of the same user, open it by its path.
class HostLockFile {
 public:
  /// Throws DeviceError when the system gives no memory for it.
  HostLockFile();
  ~HostLockFile();
  HostLockFile(const HostLockFile&) = delete;
  HostLockFile& operator=(const HostLockFile&) = delete;
  HostLockFile(HostLockFile&&) = delete;
  HostLockFile& operator=(HostLockFile&&) = delete;

  std::string path() const;

 private:
  int descriptor_;
};

/// A lock that several processes share, or one has alone. One that waits to have it alone keeps newcomers
/// out, so that it comes to an end. The kernel frees it when its process dies, whatever that left behind. A
/// process opens each of a file's locks once, and closes them together: the first that goes frees all.
class HostLock {
 public:
  enum class Kind { shared, alone };
  /// What is locked: the host, or what its memory can move.
  enum class Of { host, memory };

  /// Throws DeviceError when there is no such file.
  HostLock(const std::string& path, Of what);
  ~HostLock();
  HostLock(const HostLock&) = delete;
  HostLock& operator=(const HostLock&) = delete;
  HostLock(HostLock&&) = delete;
  HostLock& operator=(HostLock&&) = delete;

  /// Of a lock that this process does not have, or shares and wants alone. False: it would have to wait, and has
  /// what it had.
  bool try_lock(Kind kind);
  void lock(Kind kind);
  void unlock();
  /// Whether another process waits for it, or is about to get it.
  bool is_wanted() const;

 private:
  int descriptor_;
  Of what_;
};

}  // namespace ssmbench

#include "model/build_info.h"

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstring>

#include "git_revision.h"  // written by cmake/GitRevision.cmake

namespace ssmbench {

namespace {

/// The descriptor of the note "GNU" of type NT_GNU_BUILD_ID in hex; empty when there is none.
std::string build_id_among(const char* notes, std::size_t size) {
  const auto padded = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes, sizeof note);
    const char* name = notes + sizeof note;
    const char* descriptor = name + padded(note.n_namesz);
    const std::size_t whole = sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
    if (whole > size) break;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      std::string hex;
      for (std::size_t i = 0; i < note.n_descsz; ++i) {
        constexpr std::string_view kDigits = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(descriptor[i]);
        hex += {kDigits[byte / 16], kDigits[byte % 16]};
      }
      return hex;
    }
    notes += whole;
    size -= whole;
  }
  return "";
}

}  // namespace

std::string executable_build_id() {
  std::string id;
  dl_iterate_phdr(
      [](dl_phdr_info* program, std::size_t, void* into) {
        auto& found = *static_cast<std::string*>(into);
        for (int i = 0; i < program->dlpi_phnum && found.empty(); ++i) {
          const ElfW(Phdr)& segment = program->dlpi_phdr[i];
          if (segment.p_type != PT_NOTE) continue;
          const ElfW(Addr) address = program->dlpi_addr + segment.p_vaddr;
          // NOLINTNEXTLINE(performance-no-int-to-ptr): the loader gives addresses as integers
          found = build_id_among(reinterpret_cast<const char*>(address), segment.p_memsz);
        }
        return 1;  // the first is the executable; no libraries
      },
      &id);
  return id.empty() ? "unknown" : id;
}

const BuildInfo& build_info() {
  static constexpr BuildInfo info{.version = SSMBENCH_VERSION,
                                  .git_revision = SSMBENCH_GIT_REVISION,
                                  .compiler = SSMBENCH_COMPILER,
                                  .build_type = SSMBENCH_BUILD_TYPE,
                                  .cuda = SSMBENCH_CUDA_VERSION,
                                  .cuda_architectures = SSMBENCH_CUDA_ARCHITECTURES};
  return info;
}

}  // namespace ssmbench

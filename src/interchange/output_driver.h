#pragma once

#include "interchange/h5.h"
#include "interchange/temporary_file.h"

namespace ssmbench {

/// Creates an HDF5 file in `file`, which must outlive it. HDF5 never sees a write fail, because after a
/// failed write HDF5 1.10 neither closes the file nor survives its own clean-up at exit. Who writes asks
/// file.check() instead.
h5::File create_hdf5(TemporaryFile& file);

}  // namespace ssmbench

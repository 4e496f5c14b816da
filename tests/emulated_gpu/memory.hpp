// Where an address lies: blocks of the emulated devices and of pinned host memory.
#pragma once

#include <cstddef>
#include <initializer_list>

namespace canzona::emulated_gpu {

/// One operand of a library's call.
struct Operand {
  const char* name;
  const void* address;
  std::size_t bytes;
};

/// Whether kernels of a device may use the operands: live memory of that device, or pinned memory. False with a
/// complaint. Operands of no bytes pass.
bool are_usable(const char* caller, int device, std::initializer_list<Operand> operands);

}  // namespace canzona::emulated_gpu

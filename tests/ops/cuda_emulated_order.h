// Which accesses of an emulated block's threads are ordered, for ThreadSanitizer: in a build with
// it every thread of a block is a fiber of its own, and only what orders memory on a GPU orders the
// fibers: barriers of a block, a group and a warp, and barriers in shared memory. Shuffles and mma
// do not. So the sanitizer finds what racecheck finds, and beyond it races between blocks in device
// memory and bulk copies that are not waited for. Nothing happens in other builds.
#pragma once

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace replayssm::cuda::emulated {

#if defined(__SANITIZE_THREAD__)

inline constexpr bool kOrderChecked = true;

// A function that accesses no memory but the emulator's own.
#define REPLAYSSM_UNOBSERVED __attribute__((no_sanitize_thread))

inline void release(const void* at) { __tsan_release(const_cast<void*>(at)); }
inline void acquire(const void* at) { __tsan_acquire(const_cast<void*>(at)); }

// The emulator's own numbers, which are not the kernels' and are accessed in turns.
class Unobserved {
 public:
  Unobserved() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Unobserved() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
};

// A sequence of accesses that the sanitizer tells apart from all others. It knows what its creator
// knows.
class Strand {
 public:
  Strand() : fiber_(__tsan_create_fiber(0)) {}
  ~Strand() { __tsan_destroy_fiber(fiber_); }
  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;
  // The caller goes on as this one, which learns nothing by it.
  REPLAYSSM_UNOBSERVED void become() const {
    __tsan_switch_to_fiber(fiber_, __tsan_switch_to_fiber_no_sync);
  }

 private:
  void* fiber_;
};
class Caller {
 public:
  Caller() : fiber_(__tsan_get_current_fiber()) {}
  REPLAYSSM_UNOBSERVED void become() const {
    __tsan_switch_to_fiber(fiber_, __tsan_switch_to_fiber_no_sync);
  }

 private:
  void* fiber_;
};

#else

inline constexpr bool kOrderChecked = false;

inline void release(const void*) {}
inline void acquire(const void*) {}
struct Unobserved {
  Unobserved() {}
};
#define REPLAYSSM_UNOBSERVED
struct Strand {
  void become() const {}
};
struct Caller {
  void become() const {}
};

#endif

}  // namespace replayssm::cuda::emulated

# The CUDA language, and how the kernels are compiled.
set(REPLAYSSM_CUDA_ARCHITECTURES 90a CACHE STRING
    "Architectures of the kernels, for example 80;90a;100; 90a is what is measured, 80 and 100 compile the same sources and are untested")
option(REPLAYSSM_CUDA_ONE_INSTANCE
       "One kernel instance for each operation: quick to compile, for machines without a GPU" OFF)
find_package(CUDAToolkit REQUIRED)
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
endif()
enable_language(CUDA)
# CMake 3.25 does not know how this compiler spells C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA_STANDARD 20)

# Compiles a target's .cu files for the architectures named, by default REPLAYSSM_CUDA_ARCHITECTURES. No
# contraction behind our back: results may not depend on how an
# instance was optimised. The fmt definitions are what its version 9 needs to be read by nvcc as
# C++20.
function(replayssm_cuda_target TARGET)
  set_target_properties(${TARGET} PROPERTIES CUDA_ARCHITECTURES OFF)
  set(architectures ${ARGN})
  if(NOT architectures)
    set(architectures ${REPLAYSSM_CUDA_ARCHITECTURES})
  endif()
  foreach(architecture ${architectures})
    target_compile_options(${TARGET} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-gencode arch=compute_${architecture},code=sm_${architecture}>")
  endforeach()
  target_compile_options(${TARGET} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:-O3;-lineinfo;--fmad=false;--ptxas-options=-v;-DFMT_CONSTEVAL=;-DFMT_USE_CONSTEXPR=1>")
endfunction()

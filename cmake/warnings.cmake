# canzona_options: what every target of this project is compiled with.
add_library(canzona_options INTERFACE)
target_include_directories(canzona_options INTERFACE ${PROJECT_SOURCE_DIR})
# One expression, one rounding per operation: bitwise comparisons must not depend on where a compiler fuses.
target_compile_options(canzona_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-ffp-contract=off>"
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${CANZONA_WERROR}>>:-Werror>"
  # 1675: the host compiler's own pragmas. Functions that are constexpr may run in kernels. nvcc cannot check fmt's formats.
  "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-fmad=false;-DEIGEN_NO_CUDA;-DFMT_USE_CONSTEXPR=1;-DFMT_CONSTEVAL=;-diag-suppress=1675;-Xcompiler=-Wall,-Wextra,-ffp-contract=off>"
  "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${CANZONA_WERROR}>>:-Werror=all-warnings>")
if(CANZONA_SANITIZE)
  target_compile_options(canzona_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(canzona_options INTERFACE -fsanitize=address,undefined)
endif()
if(CANZONA_SANITIZE_THREADS)
  target_compile_options(canzona_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(canzona_options INTERFACE -fsanitize=thread)
endif()

# canzona_options: what every target of this project is compiled with.
add_library(canzona_options INTERFACE)
target_include_directories(canzona_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(canzona_options INTERFACE -Wall -Wextra -Wpedantic $<$<BOOL:${CANZONA_WERROR}>:-Werror>
  # One expression, one rounding per operation: bitwise comparisons must not depend on where a compiler fuses.
  -ffp-contract=off)
if(CANZONA_SANITIZE)
  target_compile_options(canzona_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(canzona_options INTERFACE -fsanitize=address,undefined)
endif()
if(CANZONA_SANITIZE_THREADS)
  target_compile_options(canzona_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(canzona_options INTERFACE -fsanitize=thread)
endif()

// The headers of library_headers.h and those of GoogleTest: every test starts from them.
#include "tools/deps/precompiled/library_headers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

/* What libc++ calls before it aborts. */
#pragma once
#ifdef __cplusplus
extern "C"
#endif
    void android_set_abort_message(const char* message);

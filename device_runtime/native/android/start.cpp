// The begin of a shared library for Android, in place of the NDK's crtbegin_so: by this address Android knows the
// library's destructors from those of others.
extern "C" {

void __cxa_finalize(void* library);

__attribute__((visibility("hidden"))) void* __dso_handle = &__dso_handle;

__attribute__((destructor)) static void finalize() {
  __cxa_finalize(&__dso_handle);
}

}  // extern "C"

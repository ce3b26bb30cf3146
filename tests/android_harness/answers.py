"""What phones answer to the script that asks for their facts; written after real phones, no copies of any."""

PIXEL_6A = """
phonograd-section properties
ro.product.manufacturer=Google
ro.product.model=Pixel 6a
ro.soc.manufacturer=Google
ro.soc.model=Tensor
ro.hardware.chipname=
ro.board.platform=gs101
ro.hardware=bluejay
ro.build.version.release=14
ro.build.version.sdk=34
ro.product.cpu.abi=arm64-v8a
ro.build.fingerprint=google/bluejay/bluejay:14/UQ1A.240205.002/11224170:user/release-keys

phonograd-section cpuinfo
{cpuinfo}

phonograd-section cores
cpu0 max_khz=1803000 capacity=124
cpu1 max_khz=1803000 capacity=124
cpu2 max_khz=1803000 capacity=124
cpu3 max_khz=1803000 capacity=124
cpu4 max_khz=2253000 capacity=427
cpu5 max_khz=2253000 capacity=427
cpu6 max_khz=2802000 capacity=1024
cpu7 max_khz=2802000 capacity=1024

phonograd-section meminfo
MemTotal:        5710444 kB
MemFree:          201332 kB
MemAvailable:    2603364 kB
Buffers:            6072 kB

phonograd-section df
Filesystem      1K-blocks     Used Available Use% Mounted on
/dev/block/dm-46 115237960 41283112  73823776  36% /data

phonograd-section zones
battery 29100
BIG 41000
MID 39000
LITTLE 38000
usb_pwr_therm2 -274000
soc_therm 36000

phonograd-section battery
Current Battery Service state:
  AC powered: false
  USB powered: true
  Wireless powered: false
  Dock powered: false
  Max charging current: 500000
  Max charging voltage: 5000000
  Charge counter: 3672000
  status: 2
  health: 2
  present: true
  level: 85
  scale: 100
  voltage: 4243
  temperature: 291
  technology: Li-ion
  Charging state: 1
  Capacity level: -1

phonograd-section thermal
IsStatusOverride: false
ThermalEventListeners:
	callbacks: 3
	killed: false
	broadcasts count: -1
ThermalStatusListeners:
	callbacks: 4
	killed: false
	broadcasts count: -1
Thermal Status: 1
Cached temperatures:
	Temperature{{mValue=33.1, mType=3, mName=VIRTUAL-SKIN, mStatus=0}}
HAL Ready: true
HAL connection:
	ThermalHAL AIDL 1  connected: yes
Current temperatures from HAL:
	Temperature{{mValue=40.0, mType=0, mName=BIG, mStatus=0}}
	Temperature{{mValue=34.2, mType=3, mName=VIRTUAL-SKIN, mStatus=0}}
Current cooling devices from HAL:
	CoolingDevice{{mValue=0, mType=2, mName=thermal-cpufreq-0}}
""".format(
    cpuinfo="\n\n".join(
        f"processor\t: {number}\nBogoMIPS\t: 49.15\nFeatures\t: fp asimd evtstrm aes asimddp\n"
        f"CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: {part}\nCPU revision\t: 0"
        for number, part in enumerate(["0xd05"] * 4 + ["0xd41"] * 2 + ["0xd44"] * 2)
    )
)

# Android 8, Linux 3.18: no capacities, no thermal service, dumpsys without a dock; a wireless charger.
GALAXY_S7 = """
phonograd-section properties
ro.product.manufacturer=samsung
ro.product.model=SM-G930F
ro.soc.manufacturer=
ro.soc.model=
ro.hardware.chipname=exynos8890
ro.board.platform=exynos5
ro.hardware=samsungexynos8890
ro.build.version.release=8.0.0
ro.build.version.sdk=26
ro.product.cpu.abi=arm64-v8a
ro.build.fingerprint=samsung/heroltexx/herolte:8.0.0/R16NW/G930FXXU8ETI2:user/release-keys

phonograd-section cpuinfo
{cpuinfo}

Hardware\t: SAMSUNG Exynos8890

phonograd-section cores
cpu0 max_khz=1586000 capacity=
cpu1 max_khz=1586000 capacity=
cpu2 max_khz=1586000 capacity=
cpu3 max_khz=1586000 capacity=
cpu4 max_khz=2600000 capacity=
cpu5 max_khz=2600000 capacity=
cpu6 max_khz= capacity=
cpu7 max_khz= capacity=

phonograd-section meminfo
MemTotal:        3664716 kB
MemFree:          147796 kB
MemAvailable:    1588820 kB

phonograd-section df
Filesystem           1K-blocks      Used Available Use% Mounted on
/dev/block/platform/155a0000.ufs/by-name/USERDATA
                      25413308  14018216  11378708  56% /data

phonograd-section zones
exynos-therm 43

phonograd-section battery
Current Battery Service state:
  AC powered: false
  USB powered: false
  Wireless powered: true
  status: 2
  level: 12
  scale: 100
  voltage: 3811
  temperature: 254
SEC Battery:
  level: 99
  temperature: 999

phonograd-section thermal
Can't find service: thermalservice
""".format(
    cpuinfo="\n\n".join(
        f"processor\t: {number}\nFeatures\t: fp asimd aes\nCPU implementer\t: {implementer}\nCPU part\t: {part}"
        for number, (implementer, part) in enumerate([("0x41", "0xd03")] * 4 + [("0x53", "0x001")] * 4)
    )
)

# Dimensity 8100 as MediaTek sets its properties; capacities alike in all clusters, so that frequency decides.
MEDIATEK = """
phonograd-section properties
ro.product.manufacturer=Xiaomi
ro.product.model=22041216G
ro.soc.manufacturer=Mediatek
ro.soc.model=MT6895
ro.board.platform=mt6895
ro.hardware=mt6895
ro.build.version.release=13
ro.build.version.sdk=33
ro.product.cpu.abi=arm64-v8a
ro.build.fingerprint=Redmi/xaga/xaga:13/TP1A.220624.014:user/release-keys

phonograd-section cpuinfo
{cpuinfo}

phonograd-section cores
{cores}

phonograd-section meminfo
MemTotal:        7840536 kB
MemAvailable:    3911460 kB

phonograd-section df
Filesystem      1K-blocks     Used Available Use% Mounted on
/dev/fuse       112345678 12345678  99999999  12% /storage/emulated

phonograd-section zones
soc_max 51234
mtktscpu 52100
mtktsbattery 31000

phonograd-section battery
Current Battery Service state:
  AC powered: true
  USB powered: false
  level: 50
  scale: 50
  temperature: 310

phonograd-section thermal
Thermal Status: 3
""".format(
    cpuinfo="\n\n".join(
        f"processor\t: {number}\nCPU implementer\t: 0x41\nCPU part\t: {part}"
        for number, part in enumerate(["0xd05"] * 4 + ["0xd41"] * 4)
    ),
    cores="\n".join(f"cpu{number} max_khz={2000000 if number < 4 else 2850000} capacity=1024" for number in range(8)),
)

# Linux 3.10: one part for all cores; SELinux refuses all of /sys, and nothing but a few properties is told.
OLD_REFUSING = """
phonograd-section properties
ro.product.manufacturer=LGE
ro.product.model=Nexus 5X
ro.soc.model=unknown
ro.board.platform=msm8992
ro.hardware=bullhead
ro.build.version.release=8.1.0
ro.build.version.sdk=27
ro.product.cpu.abi=arm64-v8a

phonograd-section cpuinfo
Processor\t: AArch64 Processor rev 3 (aarch64)
processor\t: 0
processor\t: 1
processor\t: 2
processor\t: 3
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd03
CPU revision\t: 3

Hardware\t: Qualcomm Technologies, Inc MSM8992

phonograd-section cores
cpu0 max_khz= capacity=
cpu1 max_khz= capacity=
cpu2 max_khz= capacity=
cpu3 max_khz= capacity=

phonograd-section meminfo

phonograd-section df

phonograd-section zones

phonograd-section battery

phonograd-section thermal
"""

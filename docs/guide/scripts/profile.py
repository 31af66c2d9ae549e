#!/usr/bin/env python3
"""Cuts the profile out of a result that `-Rxml` printed, for `-X`, which runs the same test again.

    diskspd -Rxml -d10 -r -b8K -o8 X:\\testfile.dat > result.xml
    profile.py result.xml > profile.xml
    diskspd -Xprofile.xml
"""

import sys
import xml.etree.ElementTree as ElementTree

profile = ElementTree.parse(sys.argv[1]).getroot().find("Profile")
if profile is None:
    sys.exit(f"{sys.argv[1]}: there is no profile in it: is it a result of -Rxml?")
profile.tail = "\n"
sys.stdout.write(ElementTree.tostring(profile, encoding="unicode"))

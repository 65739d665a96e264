import sys
sys.modules['workbench'] = None

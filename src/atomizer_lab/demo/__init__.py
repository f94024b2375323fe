"""What `atomizer demo` runs, and the page that it leaves."""

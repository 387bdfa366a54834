/* The search of a page that was opened as a file. Browsers allow such a page no Worker, so that its script runs in
   a hidden frame. Zensical would load another one like this from elsewhere, were it not for this one's name. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inner = frame.contentWindow
      this.inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        this.onmessage?.(event)
      }
      const script = this.inner.document.createElement("script")
      script.src = new URL(url, location.href)
      this.loaded = new Promise((done) => script.addEventListener("load", done))
      this.inner.document.body.append(script)
    }

    async postMessage(data) {
      await this.loaded
      this.inner.dispatchEvent(new MessageEvent("message", { data }))
    }

    terminate() {}
  }
}
